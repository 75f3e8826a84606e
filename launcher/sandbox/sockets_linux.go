package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A socket belongs to the network that it was made in, whoever uses it. So PID 1 makes
// bare ones and hands them out; what they are bound or connected to is decided out here.
// The launcher owns the user namespace, so that it may bind ports below 1024 as well,
// which nobody inside may.

// dialTimeout bounds one connection into the sandbox: its loopback answers at once, or
// does not because the listener's queue is full.
const dialTimeout = 5 * time.Second

// next reads a message, and answers those that ask for sockets.
func (in *initial) next(limit int) (*message, error) {
	for {
		m, err := decode(in.control, limit)
		if err != nil || m.Type != msgSocket {
			return m, err
		}
		if err := in.socket(m); err != nil {
			return nil, err
		}
	}
}

// socket makes a bare TCP or UDP socket and hands it out.
func (in *initial) socket(m *message) error {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if m.IPv6 {
		family = unix.AF_INET6
	}
	if m.Datagram {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		no, _ := errors.AsType[unix.Errno](err)
		return in.send(&message{Type: msgSocket, ID: m.ID, Code: int(no)})
	}
	defer unix.Close(fd)
	return in.send(&message{Type: msgSocket, ID: m.ID}, fd)
}

// sockets are the requests for sockets that wait for an answer.
type sockets struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]socketRequest
	over    bool
}

type socketRequest struct {
	answer   chan socketAnswer
	datagram bool
}

type socketAnswer struct {
	file *os.File
	err  error
}

var errEnded = errors.New("the sandbox has ended")

// ask registers a request.
func (s *sockets) ask(datagram bool) (uint64, chan socketAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, nil, errEnded
	}
	if s.waiting == nil {
		s.waiting = map[uint64]socketRequest{}
	}
	s.last++
	ch := make(chan socketAnswer, 1)
	s.waiting[s.last] = socketRequest{ch, datagram}
	return s.last, ch, nil
}

// forget gives a request up. What was answered already is closed.
func (s *sockets) forget(id uint64, ch chan socketAnswer) {
	s.mu.Lock()
	delete(s.waiting, id)
	s.mu.Unlock()
	select {
	case a := <-ch:
		if a.file != nil {
			_ = a.file.Close()
		}
	default:
	}
}

// answer brings an answer to who asked, and closes what nobody asked for.
func (s *sockets) answer(m *message, fds []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request, asked := s.waiting[m.ID]
	delete(s.waiting, m.ID)
	var a socketAnswer
	switch {
	case len(fds) == 0 && m.Code > 0:
		a.err = unix.Errno(m.Code)
	case len(fds) != 1:
		a.err = fmt.Errorf("receive socket: %d descriptors, want 1", len(fds))
	default:
		a.err = bare(fds[0], request.datagram)
	}
	if a.err != nil {
		closeAll(fds)
	} else {
		a.file = os.NewFile(uintptr(fds[0]), "socket of the sandbox")
	}
	switch {
	case asked:
		request.answer <- a // it has room for one, and is found once
	case a.file != nil:
		_ = a.file.Close()
	}
}

// end fails what waits, and what asks from now on.
func (s *sockets) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for id, request := range s.waiting {
		delete(s.waiting, id)
		request.answer <- socketAnswer{err: errEnded}
	}
}

// bare demands that fd is a TCP socket, or a UDP one, that leads nowhere yet.
func bare(fd int, datagram bool) error {
	wantKind, wantProtocol, name := unix.SOCK_STREAM, unix.IPPROTO_TCP, "TCP"
	if datagram {
		wantKind, wantProtocol, name = unix.SOCK_DGRAM, unix.IPPROTO_UDP, "UDP"
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return fmt.Errorf("receive socket: %w", err)
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return fmt.Errorf("receive socket: %w", err)
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return fmt.Errorf("receive socket: %w", err)
	}
	_, peer := unix.Getpeername(fd)
	if kind != wantKind || protocol != wantProtocol || listens != 0 || !errors.Is(peer, unix.ENOTCONN) {
		return fmt.Errorf("receive socket: it is not a bare %s socket", name)
	}
	return unix.SetNonblock(fd, true)
}

// socket asks PID 1 for a socket.
func (p *Process) socket(ctx context.Context, ipv6, datagram bool) (*os.File, error) {
	id, answered, err := p.sockets.ask(datagram)
	if err != nil {
		return nil, err
	}
	if err := p.send(&message{Type: msgSocket, ID: id, IPv6: ipv6, Datagram: datagram}, maxInside); err != nil {
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
	f, err := p.socket(ctx, ipv6, false)
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
	f, err := p.socket(ctx, ipv6, false)
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
