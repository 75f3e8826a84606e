package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"postern/launcher/sandbox"
)

// publish listens on the host. Where no address was named and the host has no IPv6,
// IPv4 is enough.
func publish(ctx context.Context, p Publish) (lns []*net.TCPListener, err error) {
	addrs := []netip.Addr{p.Addr}
	if !p.Addr.IsValid() {
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	for i, a := range addrs {
		ln, err := listen(ctx, netip.AddrPortFrom(a, p.Host))
		if i > 0 && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			break
		}
		if err != nil {
			closeAll(lns)
			return nil, refusal(p, netip.AddrPortFrom(a, p.Host), err)
		}
		lns = append(lns, ln)
	}
	return lns, nil
}

func listen(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
	network := "tcp6"
	if at.Addr().Is4() {
		network = "tcp4"
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // it cannot be spliced
	ln, err := lc.Listen(ctx, network, at.String())
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil //nolint:forcetypeassert // the network says so
}

// refusal words why a port of the host cannot be had.
func refusal(p Publish, at netip.AddrPort, err error) error {
	r := &sandbox.Refusal{Reason: sandbox.ReasonPortAddress, Detail: fmt.Sprintf("cannot listen on %s of this host", at), Err: err}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		r.Reason, r.Err = sandbox.ReasonPortBusy, nil
		r.Detail = fmt.Sprintf("port %d of this host is taken: somebody listens at %s", p.Host, at)
		r.Cure = fmt.Sprintf("publish it under another: -p OTHER:%d", p.Inside)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		r.Reason, r.Err = sandbox.ReasonPortDenied, nil
		r.Detail = fmt.Sprintf("this user may not listen on port %d of this host", p.Host)
		r.Cure = fmt.Sprintf("publish it under one from 1024 on: -p OTHER:%d", p.Inside)
	}
	return r
}

// dialHost connects to a port of the host's loopback: at 127.0.0.1, else at ::1.
func dialHost(ctx context.Context, port uint16) (*net.TCPConn, error) {
	var errs []error
	d := net.Dialer{Timeout: dialTimeout}
	for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		if err == nil {
			return c.(*net.TCPConn), nil //nolint:forcetypeassert // the network says so
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func closeAll(lns []*net.TCPListener) {
	for _, ln := range lns {
		_ = ln.Close()
	}
}
