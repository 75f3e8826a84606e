package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout bounds one connection into the sandbox: its loopback answers at once, or
// does not because the listener's queue is full.
const dialTimeout = 5 * time.Second

// socket asks PID 1 for a socket.
func (p *Process) socket(ctx context.Context, ipv6 bool) (*os.File, error) {
	id, answered, err := p.sockets.ask()
	if err != nil {
		return nil, err
	}
	if err := p.send(&message{Type: msgSocket, ID: id, IPv6: ipv6}, maxInside); err != nil {
		p.sockets.forget(id, answered)
		return nil, err
	}
	select {
	case a := <-answered:
		return a.file, a.err
	case <-ctx.Done():
		p.sockets.forget(id, answered)
		return nil, ctx.Err()
	}
}

// loopback are the addresses a sandbox has, in the order in which they are tried.
func loopback(ipv6 bool, port uint16) unix.Sockaddr {
	if ipv6 {
		return &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}
	}
	return &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}
}

// CheckPorts says why ports cannot be led into and out of sandboxes on this system.
func CheckPorts() error { return nil }

// Dial connects to a port inside: at 127.0.0.1, else at ::1. It works from Start on.
func (p *Process) Dial(ctx context.Context, port uint16) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var errs []error
	for _, ipv6 := range []bool{false, true} {
		c, err := p.dial(ctx, ipv6, port)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		if errors.Is(err, errEnded) {
			break
		}
	}
	return nil, fmt.Errorf("connect to port %d of the sandbox: %w", port, errors.Join(errs...))
}

func (p *Process) dial(ctx context.Context, ipv6 bool, port uint16) (*net.TCPConn, error) {
	f, err := p.socket(ctx, ipv6)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	to := loopback(ipv6, port)
	// Asked again after each wait, which also tells how the attempt went.
	var failed error
	wait := raw.Write(func(fd uintptr) bool {
		failed = unix.Connect(int(fd), to)
		switch {
		case failed == nil:
		case errors.Is(failed, unix.EISCONN):
			failed = nil
		case errors.Is(failed, unix.EINPROGRESS), errors.Is(failed, unix.EALREADY), errors.Is(failed, unix.EINTR):
			return false
		}
		return true
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case wait != nil:
		return nil, wait
	case failed != nil:
		return nil, failed
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil //nolint:forcetypeassert // a TCP socket, see bare
}

// Listen listens on a port inside, at 127.0.0.1 and, where the sandbox has it, at ::1.
// Connections are the caller's: nobody inside can accept them. Before Exec, nobody can
// have taken the port.
func (p *Process) Listen(ctx context.Context, port uint16) ([]*net.TCPListener, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var lns []*net.TCPListener
	for _, ipv6 := range []bool{false, true} {
		ln, err := p.bind(ctx, ipv6, port)
		switch {
		case err == nil:
			lns = append(lns, ln)
		case ipv6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)):
			// A kernel without it.
		default:
			for _, ln := range lns {
				_ = ln.Close()
			}
			return nil, fmt.Errorf("listen on port %d of the sandbox: %w", port, err)
		}
	}
	return lns, nil
}

func (p *Process) bind(ctx context.Context, ipv6 bool, port uint16) (*net.TCPListener, error) {
	f, err := p.socket(ctx, ipv6)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if ipv6 {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		}
		failed = errors.Join(failed, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		if failed == nil {
			failed = unix.Bind(int(fd), loopback(ipv6, port))
		}
		if failed == nil {
			failed = unix.Listen(int(fd), backlog)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil //nolint:forcetypeassert // a TCP socket, see bare
}
