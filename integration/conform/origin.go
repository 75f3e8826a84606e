package main

import (
	"bufio"
	"bytes"
	"crypto/sha1" // RFC 6455 has no other
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// originMark is in every answer of an origin, so that none is taken for the
// appliance's own.
const originMark = "Conform-Origin"

// originServer is every server on the Internet.
type originServer struct {
	listeners []net.Listener
	wg        sync.WaitGroup

	mu       sync.Mutex
	conns    []*originConn
	response string // raw answer to the next requests, instead of the default
}

// originConn is one connection that reached an origin.
type originConn struct {
	conn net.Conn
	addr netip.AddrPort // the address it was made to

	mu       sync.Mutex
	received []byte
	requests []originRequest
}

// originRequest is one HTTP request as it arrived.
type originRequest struct {
	head     string // raw, with the empty line
	body     []byte
	complete bool
}

// listenOrigins listens on ports of all addresses.
func listenOrigins(ports []uint16, ipv6 bool) (*originServer, error) {
	o := new(originServer)
	networks := map[string]string{"tcp4": "0.0.0.0"}
	if ipv6 {
		networks["tcp6"] = "[::]"
	}
	for _, p := range ports {
		for network, host := range networks {
			ln, err := net.Listen(network, host+":"+itoa(p))
			if err != nil {
				o.close()
				return nil, fmt.Errorf("listen for origins: %w", err)
			}
			o.listeners = append(o.listeners, ln)
			o.wg.Go(func() { o.accept(ln) })
		}
	}
	return o, nil
}

func (o *originServer) close() {
	for _, ln := range o.listeners {
		_ = ln.Close()
	}
	o.reset("")
	o.wg.Wait()
}

// reset forgets and cuts all connections, and sets the raw answer of the next
// case.
func (o *originServer) reset(response string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.conns {
		_ = c.conn.Close()
	}
	o.conns, o.response = nil, response
}

// seen are the connections since the last reset.
func (o *originServer) seen() []*originConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*originConn(nil), o.conns...)
}

// payload is how many bytes origins have received since the last reset.
func (o *originServer) payload() int {
	n := 0
	for _, c := range o.seen() {
		n += len(c.bytes())
	}
	return n
}

// requests are the HTTP requests since the last reset.
func (o *originServer) requests() []originRequest {
	var out []originRequest
	for _, c := range o.seen() {
		c.mu.Lock()
		out = append(out, c.requests...)
		c.mu.Unlock()
	}
	return out
}

func (c *originConn) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.received)
}

// Write is the tee's end: it notes what arrived.
func (c *originConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, p...)
	return len(p), nil
}

func (o *originServer) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		c := &originConn{conn: conn}
		if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
			c.addr = a.AddrPort()
		}
		o.mu.Lock()
		o.conns = append(o.conns, c)
		response := o.response
		o.mu.Unlock()
		o.wg.Go(func() {
			defer conn.Close()
			c.serve(response)
		})
	}
}

// serve answers HTTP if the first bytes look like it, and echoes otherwise.
func (c *originConn) serve(response string) {
	r := bufio.NewReader(io.TeeReader(c.conn, c))
	for {
		if !looksLikeHTTP(r) {
			_, _ = io.Copy(c.conn, r)
			return
		}
		if !c.answer(r, response) {
			return
		}
	}
}

// looksLikeHTTP looks for a method in capitals and a blank, waiting for as many
// bytes as it takes to know.
func looksLikeHTTP(r *bufio.Reader) bool {
	for n := 1; n <= 20; n++ {
		p, err := r.Peek(n)
		if err != nil {
			return false
		}
		switch b := p[n-1]; {
		case b == ' ' && n > 2:
			return true
		case b < 'A' || b > 'Z':
			return false
		}
	}
	return false
}

// answer serves one HTTP request. What it notes are the bytes as they came; the
// parser of net/http only finds where the request ends. It reports false when
// the connection is done.
func (c *originConn) answer(r *bufio.Reader, response string) bool {
	c.mu.Lock()
	start := len(c.received) - r.Buffered()
	c.mu.Unlock()
	req, err := http.ReadRequest(r)
	c.mu.Lock()
	head := string(c.received[start:])
	c.mu.Unlock()
	if i := headEnd(head); i > 0 {
		head = head[:i]
	}
	if err != nil {
		c.note(originRequest{head: head})
		return false
	}
	c.note(originRequest{head: head})
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		// Late enough to tell our 100 from one made up on the way.
		time.Sleep(100 * time.Millisecond)
		_, _ = io.WriteString(c.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	if key := req.Header.Get("Sec-WebSocket-Key"); key != "" && strings.EqualFold(req.Header.Get("Upgrade"), "websocket") {
		c.finish(nil)
		sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		_, _ = fmt.Fprintf(c.conn, "HTTP/1.1 101 Switching Protocols\r\n%s: yes\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			originMark, base64.StdEncoding.EncodeToString(sum[:]))
		_, _ = io.Copy(c.conn, r)
		return false
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return false
	}
	c.finish(body)
	if response == "" {
		response = "HTTP/1.1 200 OK\r\n" + originMark + ": yes\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n"
		if req.Method == http.MethodHead {
			response = strings.TrimSuffix(response, "ok\n")
		}
	}
	_, err = io.WriteString(c.conn, response)
	return err == nil && !req.Close
}

func (c *originConn) note(r originRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
}

// finish marks the last request as whole.
func (c *originConn) finish(body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := &c.requests[len(c.requests)-1]
	last.body, last.complete = body, true
}

// headEnd is the length of a request head with its empty line, 0 if it is not
// complete.
func headEnd(s string) int {
	crlf, lf := strings.Index(s, "\r\n\r\n"), strings.Index(s, "\n\n")
	switch {
	case crlf >= 0 && (lf < 0 || crlf < lf):
		return crlf + 4
	case lf >= 0:
		return lf + 2
	}
	return 0
}

// isClosed reports whether an error only says that the other side went away.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "connection reset") || strings.Contains(err.Error(), "broken pipe")
}
