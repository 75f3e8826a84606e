package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"postern/caddy-modules/session/lease"
)

// receiver reads the control connection and collects the descriptors that come.
type receiver struct {
	conn *net.UnixConn
	fds  []int // of the message that is being read
}

func (r *receiver) Read(b []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	n, oobn, _, _, err := r.conn.ReadMsgUnix(b, oob)
	if messages, perr := unix.ParseSocketControlMessage(oob[:oobn]); perr == nil {
		for i := range messages {
			if fds, ferr := unix.ParseUnixRights(&messages[i]); ferr == nil {
				r.fds = append(r.fds, fds...)
			}
		}
	}
	if len(r.fds) > maxFDs {
		r.drop() // no message has that many
	}
	if n == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// take hands over what came with the message that was read last.
func (r *receiver) take() []int {
	fds := r.fds
	r.fds = nil
	return fds
}

// drop closes what nobody asked for.
func (r *receiver) drop() { closeAll(r.take()) }

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// listeners takes the descriptors that came: the pair, and the bare sockets behind it.
func (r *receiver) listeners() (lease.Pair, spares, error) {
	got := r.take()
	if len(got) < 2 {
		closeAll(got)
		return lease.Pair{}, nil, fmt.Errorf("receive listeners: %d descriptors, want 2", len(got))
	}
	p, err := pairOf(got[:2])
	if err != nil {
		closeAll(got[2:])
		return p, nil, err
	}
	s, err := newSpares(got[2:])
	if err != nil {
		return lease.Pair{}, nil, errors.Join(err, p.Close())
	}
	return p, s, nil
}

// pairOf makes listeners of two descriptors.
func pairOf(got []int) (p lease.Pair, err error) {
	var lns [2]*net.TCPListener
	for i, fd := range got {
		f := os.NewFile(uintptr(fd), "listener")
		ln, lerr := net.FileListener(f)
		_ = f.Close()
		if lerr != nil {
			err = errors.Join(err, fmt.Errorf("receive listeners: %w", lerr))
			continue
		}
		tcp, ok := ln.(*net.TCPListener)
		if !ok {
			err = errors.Join(err, errors.New("receive listeners: not TCP"), ln.Close())
			continue
		}
		lns[i] = tcp
	}
	p = lease.Pair{HTTP: lns[0], SOCKS: lns[1]}
	if err != nil {
		err = errors.Join(err, p.Close())
	}
	return p, err
}
