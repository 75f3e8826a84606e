package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Low ports need the capability over the network's user namespace. Inside, nobody has
// it, nor any other. Out here its owner has, and that is who started bubblewrap: the
// kernel asks who binds a socket, and not who made it. So PID 1 makes bare sockets and
// the launcher binds them. A first stage in a sandbox of its own, with the capability,
// could do the same; it would cost a second bubblewrap at every start, and the systems
// that take capabilities away inside (AppArmor) would not let it.
//
// Which kinds are needed is known before PID 1 starts, so it hands them out with the
// listeners: no question is asked for them.

// kind is what a socket is made as, as PID 1 reads it in its arguments.
type kind struct{ ipv6, datagram bool }

// kinds are the words for it.
var kinds = map[string]kind{"tcp4": {}, "tcp6": {ipv6: true}, "udp4": {datagram: true}, "udp6": {ipv6: true, datagram: true}}

func (k kind) String() string {
	for word, of := range kinds {
		if of == k {
			return word
		}
	}
	return "" // there are four
}

func (p LowPort) kind() (kind, error) {
	if p.Network != "tcp" && p.Network != "udp" {
		return kind{}, fmt.Errorf("open %s port %s: the network must be tcp or udp", p.Network, p.Addr)
	}
	return kind{p.Addr.Addr().Is6(), p.Network == "udp"}, nil
}

// checkLow refuses what nobody can make.
func (o Options) checkLow() error {
	if len(o.Low) > maxLow {
		return fmt.Errorf("open %d sockets: at most %d", len(o.Low), maxLow)
	}
	for _, want := range o.Low {
		if _, err := want.kind(); err != nil {
			return err
		}
	}
	return nil
}

// lowKinds are the words for the sockets of Options.Low. What none can be made for is
// left to openLow, which says so.
func (o Options) lowKinds() []string {
	var out []string
	for _, want := range o.Low[:min(len(o.Low), maxLow)] {
		k, err := want.kind()
		if err != nil {
			continue
		}
		out = append(out, k.String())
	}
	return out
}

// splitSockets parts the arguments of PID 1: ports to listen on, and kinds.
func splitSockets(args []string) (ports, words []string) {
	for i, arg := range args {
		if _, known := kinds[arg]; known {
			return args[:i], args[i:]
		}
	}
	return args, nil
}

// bareAll makes bare sockets of kinds, in PID 1. What cannot be made is left out: who
// asked sees what came.
func bareAll(words []string) (fds []int) {
	for _, word := range words {
		k, known := kinds[word]
		if !known {
			continue
		}
		if fd, err := k.socket(); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds
}

func (k kind) socket() (int, error) {
	family, typ := unix.AF_INET, unix.SOCK_STREAM
	if k.ipv6 {
		family = unix.AF_INET6
	}
	if k.datagram {
		typ = unix.SOCK_DGRAM
	}
	return unix.Socket(family, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

// spares are the bare sockets that came with the listeners, by kind.
type spares map[kind][]int

// newSpares takes descriptors over, and closes what is none.
func newSpares(fds []int) (spares, error) {
	s := spares{}
	for i, fd := range fds {
		k, err := socketKind(fd)
		if err == nil {
			err = bare(fd, k.datagram)
		}
		if err != nil {
			closeAll(fds[i:])
			s.close()
			return nil, err
		}
		s[k] = append(s[k], fd)
	}
	return s, nil
}

func socketKind(fd int) (kind, error) {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return kind{}, fmt.Errorf("receive socket: %w", err)
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return kind{}, fmt.Errorf("receive socket: %w", err)
	}
	if family != unix.AF_INET && family != unix.AF_INET6 {
		return kind{}, fmt.Errorf("receive socket: it is of family %d", family)
	}
	return kind{family == unix.AF_INET6, typ == unix.SOCK_DGRAM}, nil
}

// any is one of a family, which stays where it is.
func (s spares) any(ipv6 bool) (int, bool) {
	for _, datagram := range []bool{true, false} {
		if fds := s[kind{ipv6, datagram}]; len(fds) > 0 {
			return fds[0], true
		}
	}
	return 0, false
}

func (s spares) take(k kind) (int, bool) {
	fds := s[k]
	if len(fds) == 0 {
		return 0, false
	}
	s[k] = fds[1:]
	return fds[0], true
}

func (s spares) close() {
	for k, fds := range s {
		closeAll(fds)
		delete(s, k)
	}
}

// Low are the sockets of Options.Low, in that order, from Start on. The error is a
// *Refusal that says why there are none.
func (p *Process) Low() ([]LowSocket, error) { return p.low, p.lowRefused }

// openLow makes the sockets of Options.Low, all or none. A run can do without them.
func (p *Process) openLow(o Options) {
	defer p.spare.close()
	if len(o.Low) == 0 || p.facts.Terminal {
		return // whose network is the host's
	}
	err := o.checkLow()
	if err == nil {
		err = p.addAddresses(&o)
	}
	for _, want := range o.Low {
		if err != nil {
			break
		}
		var s LowSocket
		switch s, err = p.openOne(want, o.lowDenied); {
		case err == nil:
			p.low = append(p.low, s)
		case want.Addr.Addr().Is6() && noIPv6(err):
			err = nil
		}
	}
	if err == nil {
		return
	}
	p.closeLow()
	r := &Refusal{Reason: ReasonLowPorts, Detail: "the sandbox has no sockets of its own on low ports", Err: err}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		r.Cure = "let postern have net_bind_service and net_admin over its own user namespaces (AppArmor or another security module takes them away)"
	}
	p.lowRefused = r
}

// noIPv6 tells that a socket of IPv6 is missing because everything of IPv6 is.
func noIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)
}

func (p *Process) closeLow() {
	for i := range p.low {
		_ = p.low[i].Close()
	}
	p.low = nil
}

// openOne makes one socket of a bare one.
func (p *Process) openOne(want LowPort, denied error) (s LowSocket, err error) {
	k, err := want.kind()
	if err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open %s port %s: %w", want.Network, want.Addr, err)
		}
	}()
	fd, ok := p.spare.take(k)
	switch {
	case !ok && k.ipv6:
		return s, unix.EAFNOSUPPORT
	case !ok:
		return s, errors.New("the inside of the sandbox has made no socket for it")
	}
	if err := denied; err != nil {
		return s, errors.Join(err, unix.Close(fd))
	}
	if err := bindLow(fd, want); err != nil {
		return s, errors.Join(err, unix.Close(fd))
	}
	f := os.NewFile(uintptr(fd), "socket of the sandbox")
	defer f.Close()
	s.LowPort = want
	if k.datagram {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return s, err
		}
		s.Packets = c.(*net.UDPConn) //nolint:forcetypeassert // a UDP socket, see bare
		return s, nil
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return s, err
	}
	s.Listener = ln.(*net.TCPListener) //nolint:forcetypeassert // a TCP socket, see bare
	return s, nil
}

func bindLow(fd int, want LowPort) error {
	if want.Addr.Addr().Is6() {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, sockaddr(want.Addr)); err != nil || want.Network == "udp" {
		return err
	}
	return unix.Listen(fd, backlog)
}

// control runs do with the number of f.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// withoutIPv6 drops the sockets of every address of IPv6.
func withoutIPv6(low []LowPort) []LowPort {
	return slices.DeleteFunc(slices.Clone(low), func(p LowPort) bool { return p.Addr.Addr() == netip.IPv6Unspecified() })
}
