package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"
)

// SharedLoopback says that a run shares the host's loopback: what it may connect to and
// listen at is said by Options.Reach and Serve, and a port that has the same number
// inside and outside needs nobody to lead it.
const SharedLoopback = runtime.GOOS == "darwin"

func numbers(ports []uint16) []int {
	out := make([]int, 0, len(ports))
	for _, p := range ports {
		out = append(out, int(p))
	}
	return out
}

// Dial connects to a port at which the run listens.
func (*wrapped) Dial(ctx context.Context, port uint16) (*net.TCPConn, error) {
	var errs []error
	for _, a := range bothLoopbacks() {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		if err == nil {
			return c.(*net.TCPConn), nil //nolint:forcetypeassert // the network says so
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("connect to port %d of the run: %w", port, errors.Join(errs...))
}

// Listen listens at a port that the run connects to.
func (*wrapped) Listen(ctx context.Context, port uint16) ([]*net.TCPListener, error) {
	var out []*net.TCPListener
	for i, a := range bothLoopbacks() {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		switch {
		case err == nil:
			out = append(out, ln.(*net.TCPListener)) //nolint:forcetypeassert // the network says so
			continue
		case i > 0 && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)):
			return out, nil // a host without IPv6
		}
		for _, ln := range out {
			_ = ln.Close()
		}
		return nil, &Refusal{
			Reason: ReasonPortBusy, Detail: fmt.Sprintf("port %d cannot be listened at on this host's loopback, which the run shares", port), Err: err,
			Cure: "name another number inside: --host-port OTHER:HOSTPORT",
		}
	}
	return out, nil
}

func bothLoopbacks() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}
