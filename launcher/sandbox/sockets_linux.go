package sandbox

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A socket belongs to the network that it was made in, whoever uses it. So PID 1 makes
// bare ones and hands them out; what they are bound or connected to is decided out here.
// The launcher owns the user namespace, so that it may bind ports below 1024 as well,
// which nobody inside may.

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

// socket makes a bare TCP socket and hands it out.
func (in *initial) socket(m *message) error {
	fd, err := kind{ipv6: m.IPv6}.socket()
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
	waiting map[uint64]chan socketAnswer
	over    bool
}

type socketAnswer struct {
	file *os.File
	err  error
}

var errEnded = errors.New("the sandbox has ended")

// ask registers a request.
func (s *sockets) ask() (uint64, chan socketAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, nil, errEnded
	}
	if s.waiting == nil {
		s.waiting = map[uint64]chan socketAnswer{}
	}
	s.last++
	ch := make(chan socketAnswer, 1)
	s.waiting[s.last] = ch
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
	waits, asked := s.waiting[m.ID]
	delete(s.waiting, m.ID)
	var a socketAnswer
	switch {
	case len(fds) == 0 && m.Code > 0:
		a.err = unix.Errno(m.Code)
	case len(fds) != 1:
		a.err = fmt.Errorf("receive socket: %d descriptors, want 1", len(fds))
	default:
		a.err = bare(fds[0], false)
	}
	if a.err != nil {
		closeAll(fds)
	} else {
		a.file = os.NewFile(uintptr(fds[0]), "socket of the sandbox")
	}
	switch {
	case asked:
		waits <- a // it has room for one, and is found once
	case a.file != nil:
		_ = a.file.Close()
	}
}

// end fails what waits, and what asks from now on.
func (s *sockets) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for id, waits := range s.waiting {
		delete(s.waiting, id)
		waits <- socketAnswer{err: errEnded}
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
