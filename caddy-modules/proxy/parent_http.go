package proxy

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// maxParentHead bounds the answer of a parent to a CONNECT.
const maxParentHead = 8 << 10

// httpHandshake asks for a tunnel (RFC 9110 section 9.3.6).
func (p *Parent) httpHandshake(conn *net.TCPConn, to string) error {
	b := make([]byte, 0, 512)
	b = append(b, "CONNECT "+to+" HTTP/1.1\r\nHost: "+to+"\r\n"...)
	user, password, ok, err := p.credentials()
	if err != nil {
		return err
	}
	if ok {
		b = appendField(b, "Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	if _, err := conn.Write(append(b, "\r\n"...)); err != nil {
		return err
	}
	head, err := readParentHead(conn)
	if err != nil {
		return err
	}
	return parentStatus(head)
}

// readParentHead reads up to the end of a head and no further: the connection is
// handed on bare, so that what follows the head must stay in the kernel.
func readParentHead(conn *net.TCPConn) ([]byte, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var seen [maxParentHead]byte
	have := 0
	for have < len(seen) {
		n := 0
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, _, failed = unix.Recvfrom(int(fd), seen[have:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			for errors.Is(failed, unix.EINTR) {
				n, _, failed = unix.Recvfrom(int(fd), seen[have:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			}
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return nil, err
		case failed != nil:
			return nil, failed
		case n == 0:
			return nil, fmt.Errorf("%w: it closed the connection inside its answer", errRefusedByParent)
		}
		end := parentHeadEnd(seen[:have+n], have)
		take := n
		if end > 0 {
			take = end - have
		}
		if _, err := io.ReadFull(conn, seen[have:have+take]); err != nil {
			return nil, err
		}
		have += take
		if end > 0 {
			return append([]byte(nil), seen[:have]...), nil
		}
	}
	return nil, fmt.Errorf("%w: its answer has no end", errRefusedByParent)
}

// parentHeadEnd gives the length of the head in b, 0 while it has no end. It ended
// nowhere before from.
func parentHeadEnd(b []byte, from int) int {
	const end = "\r\n\r\n"
	start := max(0, from-len(end)+1)
	if i := bytes.Index(b[start:], []byte(end)); i >= 0 {
		return start + i + len(end)
	}
	return 0
}

// parentStatus reads the status line. The error never holds text of the parent.
func parentStatus(head []byte) error {
	const least = len("HTTP/1.1 200")
	malformed := fmt.Errorf("%w: its answer is not HTTP/1", errRefusedByParent)
	if len(head) < least+2 || !bytes.HasPrefix(head, []byte("HTTP/1.")) || head[7] != '0' && head[7] != '1' || head[8] != ' ' {
		return malformed
	}
	code := 0
	for _, c := range head[9:least] {
		if c < '0' || c > '9' {
			return malformed
		}
		code = code*10 + int(c-'0')
	}
	switch c := head[least]; {
	case c != ' ' && c != '\r':
		return malformed
	case code == 407:
		return parentSays("it wants other credentials, status", code)
	case code < 200 || code > 299:
		return parentSays("status", code)
	}
	return nil
}
