package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Low ports need the capability over the network's user namespace. Inside, nobody has
// it, nor any other. Out here its owner has, and that is who started bubblewrap: the
// kernel asks who binds a socket, and not who made it. So PID 1 makes bare sockets and
// the launcher binds them. A first stage in a sandbox of its own, with the capability,
// could do the same; it would cost a second bubblewrap at every start, and the systems
// that take capabilities away inside (AppArmor) would not let it.

// secondAddress makes that programs ask for IPv4 addresses at all: with AI_ADDRCONFIG
// the C library asks only for what the host has, and does not count 127.0.0.1.
var secondAddress = netip.MustParsePrefix("127.0.0.2/8")

// Low are the sockets of Options.Low, in that order, from Start on. The error is a
// *Refusal that says why there are none.
func (p *Process) Low() ([]LowSocket, error) { return p.low, p.lowRefused }

// openLow makes the sockets of Options.Low, all or none. A run can do without them.
func (p *Process) openLow(ctx context.Context, o Options) {
	if len(o.Low) == 0 {
		return
	}
	err := p.addAddress(ctx, secondAddress)
	for _, want := range o.Low {
		if err != nil {
			break
		}
		var s LowSocket
		if s, err = p.openOne(ctx, want, o.lowDenied); err == nil {
			p.low = append(p.low, s)
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

func (p *Process) closeLow() {
	for i := range p.low {
		_ = p.low[i].Close()
	}
	p.low = nil
}

func (p *Process) openOne(ctx context.Context, want LowPort, denied error) (s LowSocket, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open %s port %s: %w", want.Network, want.Addr, err)
		}
	}()
	if want.Network != "tcp" && want.Network != "udp" {
		return s, errors.New("the network must be tcp or udp")
	}
	ipv6 := want.Addr.Addr().Is6()
	f, err := p.socket(ctx, ipv6, want.Network == "udp")
	if err != nil {
		return s, err
	}
	defer f.Close()
	if err := control(f, func(fd int) error {
		if ipv6 {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
				return err
			}
		}
		if denied != nil {
			return denied
		}
		if err := unix.Bind(fd, sockaddr(want.Addr)); err != nil || want.Network == "udp" {
			return err
		}
		return unix.Listen(fd, backlog)
	}); err != nil {
		return s, err
	}
	s.LowPort = want
	if want.Network == "udp" {
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

// addAddress gives the sandbox's loopback an IPv4 address beside the one it has. By
// ioctl: it asks for the rights of the caller, where a netlink socket asks for those
// of whoever made it as well, and that is PID 1.
func (p *Process) addAddress(ctx context.Context, addr netip.Prefix) error {
	f, err := p.socket(ctx, false, true)
	if err != nil {
		return fmt.Errorf("add address %s: %w", addr, err)
	}
	defer f.Close()
	mask := net.CIDRMask(addr.Bits(), 32)
	ip := addr.Addr().As4()
	err = control(f, func(fd int) error {
		return errors.Join(setAddress(fd, unix.SIOCSIFADDR, ip[:]), setAddress(fd, unix.SIOCSIFNETMASK, mask))
	})
	if err != nil {
		return fmt.Errorf("add address %s: %w", addr, err)
	}
	return nil
}

func setAddress(fd int, request uint, ip []byte) error {
	req, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := req.SetInet4Addr(ip); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, request, req)
}
