package lease

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Pair is the two listeners a session lends.
type Pair struct{ HTTP, SOCKS *net.TCPListener }

// Close closes both listeners of this process. Duplicates elsewhere, as the
// sender of a lease keeps them, go on listening.
func (p Pair) Close() error {
	var errs []error
	for _, ln := range []*net.TCPListener{p.HTTP, p.SOCKS} {
		if ln == nil {
			continue
		}
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// OnHost reports whether ln listens in this process's own network, so that its
// port is one of this host's. A listener made inside a sandbox's network
// namespace does not. Where it cannot be told, it does: that is the careful
// answer, for own ports are refused as targets.
func OnHost(ln *net.TCPListener) bool {
	same := true
	err := control(ln, func(fd int) error {
		same = onHost(fd)
		return nil
	})
	return err != nil || same
}

// Vetting errors, worded for who wrote the launcher.
var (
	errNotTCP       = errors.New("is not a TCP socket")
	errNotListening = errors.New("is not listening")
	errShared       = errors.New("has SO_REUSEPORT set, so that another process could take its connections")
	errNotLoopback  = errors.New("is not bound to a loopback address")
)

// vet says what is wrong with a descriptor as a lent listener, if anything.
func vet(fd int) error {
	if !isTCP(fd) {
		return errNotTCP
	}
	if !isListening(fd) {
		return errNotListening
	}
	if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT); err != nil || v != 0 {
		return errShared
	}
	at, err := boundTo(fd)
	if err != nil {
		return err
	}
	// Any other address would offer the session's proxy to the neighbours.
	if !at.Addr().IsLoopback() {
		return errNotLoopback
	}
	return nil
}

// adopt makes a Pair, and the sockets that the hello names, of vetted descriptors and
// takes them over: on return they are closed or inside what is returned.
func adopt(sockets []Socket, fds []int) (p Pair, more []Lent, err error) {
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), "lent socket")
		defer files[i].Close()
	}
	if want := 2 + len(sockets); len(fds) != want {
		return Pair{}, nil, fmt.Errorf("%d descriptors came with the hello, want %d: the HTTP and the SOCKS listener, and one for each of its sockets", len(fds), want)
	}
	if p, err = adoptPair(fds, files); err != nil {
		return Pair{}, nil, err
	}
	if more, err = adoptMore(sockets, files[2:], fds[2:]); err != nil {
		return Pair{}, nil, errors.Join(err, p.Close())
	}
	return p, more, nil
}

func adoptPair(fds []int, files []*os.File) (p Pair, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = Pair{}
		}
	}()
	if p.HTTP, err = adoptOne(fds[0], files[0]); err != nil {
		return p, fmt.Errorf("the descriptor of the HTTP listener %w", err)
	}
	if p.SOCKS, err = adoptOne(fds[1], files[1]); err != nil {
		return p, fmt.Errorf("the descriptor of the SOCKS listener %w", err)
	}
	if p.HTTP.Addr().String() == p.SOCKS.Addr().String() {
		return p, errors.New("both descriptors are the same listener")
	}
	return p, nil
}

// adoptOne makes a listener of f, whose descriptor is fd. The number is passed
// along because asking f for it would change the mode of the description.
func adoptOne(fd int, f *os.File) (*net.TCPListener, error) {
	if err := vet(fd); err != nil {
		return nil, err
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("cannot be used: %w", err)
	}
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(errNotTCP, ln.Close())
	}
	return tcp, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// withDescriptors runs f with the descriptors of both listeners. They are
// borrowed, not duplicated: File would put the shared description into
// blocking mode under the feet of whoever accepts from it.
func (p Pair) withDescriptors(f func(http, socks int) error) error {
	if p.HTTP == nil || p.SOCKS == nil {
		return errors.New("lend: both listeners are needed")
	}
	return control(p.HTTP, func(http int) error {
		return control(p.SOCKS, func(socks int) error { return f(http, socks) })
	})
}
