package lease

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// What a lent socket is for.
const (
	// UseDNS is served by the session's stub resolver.
	UseDNS = "dns"

	// UseTransparent takes the connections of programs that know of no proxy: each
	// goes to the name that the address it was made to stands for.
	UseTransparent = "transparent"
)

// The networks of a Socket.
const (
	SocketTCP = "tcp"
	SocketUDP = "udp"
)

// maxSockets bounds Hello.Sockets: DNS over both transports and three transparent
// ports, each in both families.
const maxSockets = 10

// Socket describes one lent socket beside the two listeners. A use, network and port
// may be lent twice, once in each address family.
type Socket struct {
	Use     string `json:"use"`     // UseDNS or UseTransparent
	Network string `json:"network"` // SocketTCP (it listens) or SocketUDP
	Port    uint16 `json:"port"`    // that it is bound to
}

// String is for messages.
func (s Socket) String() string {
	return fmt.Sprintf("%s socket on %s port %d", s.Use, s.Network, s.Port)
}

// Lent is a lent socket with its description. One of Listener and Packets is set, as
// the network says.
type Lent struct {
	Socket
	Listener *net.TCPListener
	Packets  *net.UDPConn
}

// IPv6 reports the address family.
func (l Lent) IPv6() bool {
	switch {
	case l.Listener != nil:
		return isIPv6(l.Listener.Addr())
	case l.Packets != nil:
		return isIPv6(l.Packets.LocalAddr())
	}
	return false
}

func isIPv6(a net.Addr) bool {
	ap, ok := a.(interface{ AddrPort() netip.AddrPort })
	return ok && !ap.AddrPort().Addr().Unmap().Is4()
}

// Close closes this process's socket. It may be called again.
func (l Lent) Close() error {
	var err error
	switch {
	case l.Listener != nil:
		err = l.Listener.Close()
	case l.Packets != nil:
		err = l.Packets.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// conn is what has the descriptor.
func (l Lent) conn() (syscall.Conn, error) {
	switch {
	case l.Network == SocketTCP && l.Listener != nil && l.Packets == nil:
		return l.Listener, nil
	case l.Network == SocketUDP && l.Packets != nil && l.Listener == nil:
		return l.Packets, nil
	}
	return nil, fmt.Errorf("lend %s: the socket is missing, or of another network", l.Socket)
}

// validateSockets checks what can be said without the descriptors.
func validateSockets(all []Socket) error {
	if len(all) > maxSockets {
		return fmt.Errorf("validate sockets: %d sockets, at most %d", len(all), maxSockets)
	}
	seen := make(map[Socket]int, len(all))
	for i, s := range all {
		switch {
		case s.Use != UseDNS && s.Use != UseTransparent:
			return fmt.Errorf("validate sockets[%d]: the use %q is neither %q nor %q", i, clip(s.Use), UseDNS, UseTransparent)
		case s.Network != SocketTCP && (s.Network != SocketUDP || s.Use != UseDNS):
			return fmt.Errorf("validate sockets[%d]: the network %q does not go with the use %q", i, clip(s.Network), s.Use)
		case s.Port == 0:
			return fmt.Errorf("validate sockets[%d]: 0 is not a port", i)
		case seen[s] == 2:
			return fmt.Errorf("validate sockets[%d]: a third %s; there are two address families", i, s)
		}
		seen[s]++
	}
	return nil
}

// adoptMore makes sockets of vetted descriptors, in the order of the hello, and takes
// the files over: on return they are closed or inside what is returned.
func adoptMore(sockets []Socket, files []*os.File, fds []int) (more []Lent, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeLent(more))
			more = nil
		}
	}()
	var bound []string
	for i, s := range sockets {
		one, err := adoptSocket(s, files[i], fds[i])
		if err != nil {
			return more, fmt.Errorf("the descriptor of the %s %w", s, err)
		}
		more = append(more, one)
		at := s.Network + " " + one.addr().String()
		if slices.Contains(bound, at) {
			return more, fmt.Errorf("two descriptors are one socket on %s", at)
		}
		bound = append(bound, at)
	}
	return more, nil
}

func (l Lent) addr() net.Addr {
	if l.Packets != nil {
		return l.Packets.LocalAddr()
	}
	return l.Listener.Addr()
}

func adoptSocket(s Socket, f *os.File, fd int) (Lent, error) {
	if err := vetSocket(s, fd); err != nil {
		return Lent{}, err
	}
	if s.Network == SocketTCP {
		ln, err := net.FileListener(f)
		if err != nil {
			return Lent{}, fmt.Errorf("cannot be used: %w", err)
		}
		tcp, ok := ln.(*net.TCPListener)
		if !ok {
			return Lent{}, errors.Join(errNotTCP, ln.Close())
		}
		return Lent{Socket: s, Listener: tcp}, nil
	}
	pc, err := net.FilePacketConn(f)
	if err != nil {
		return Lent{}, fmt.Errorf("cannot be used: %w", err)
	}
	udp, ok := pc.(*net.UDPConn)
	if !ok {
		return Lent{}, errors.Join(errNotUDP, pc.Close())
	}
	return Lent{Socket: s, Packets: udp}, nil
}

// Vetting errors of sockets.
var (
	errNotUDP    = errors.New("is not a UDP socket")
	errConnected = errors.New("is connected to somebody")
	errReused    = errors.New("has SO_REUSEADDR set, so that another process could take its packets")
	errPort      = errors.New("is bound to another port")
	errForeign   = errors.New("is bound to neither loopback nor every address")
	errWide      = errors.New("is not in a network of the sandbox's own, where alone it may take what goes to any address")
	errPlain     = errors.New("is bound to one address, and a transparent one takes what goes to any")
)

// vetSocket says what is wrong with a descriptor as the socket that s describes.
//
// Bound to every address, a socket would serve the neighbours of this host. It may
// be so in another network namespace alone, which a sandbox of one's own has. A kernel
// that cannot tell the two apart counts as one that has only one.
func vetSocket(s Socket, fd int) error {
	if s.Network == SocketTCP {
		if !isTCP(fd) {
			return errNotTCP
		}
		if !isListening(fd) {
			return errNotListening
		}
	} else {
		if !isUDP(fd) {
			return errNotUDP
		}
		if _, err := unix.Getpeername(fd); err == nil {
			return errConnected
		}
		if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR); err != nil || v != 0 {
			return errReused
		}
	}
	if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT); err != nil || v != 0 {
		return errShared
	}
	at, err := boundTo(fd)
	switch {
	case err != nil:
		return err
	case at.Port() != s.Port:
		return errPort
	case at.Addr().IsUnspecified():
		if onHost(fd) {
			return errWide
		}
	case !at.Addr().IsLoopback():
		return errForeign
	case s.Use == UseTransparent:
		return errPlain
	}
	return nil
}

// boundTo is the address that a socket is bound to.
func boundTo(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("has no address: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil //nolint:gosec // G115 the kernel's ports fit
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), nil //nolint:gosec // G115 the kernel's ports fit
	}
	return netip.AddrPort{}, errors.New("has no address of the internet")
}

func closeLent(more []Lent) error {
	var errs []error
	for _, l := range more {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// withMore runs f with the descriptors of the pair and of all sockets, borrowed as
// withDescriptors has them.
func withMore(p Pair, more []Lent, f func(fds []int) error) error {
	return p.withDescriptors(func(http, socks int) error {
		return borrow(more, []int{http, socks}, f)
	})
}

func borrow(more []Lent, fds []int, f func(fds []int) error) error {
	if len(more) == 0 {
		return f(fds)
	}
	c, err := more[0].conn()
	if err != nil {
		return err
	}
	return control(c, func(fd int) error { return borrow(more[1:], append(fds, fd), f) })
}
