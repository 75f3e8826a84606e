package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"postern/caddy-modules/policy"
)

// Connection attempts, after RFC 8305: the next address is tried when the one
// before failed, or has said nothing for attemptDelay. maxAttempts bounds what one
// answer with hundreds of addresses can make us do.
const (
	attemptDelay = 250 * time.Millisecond
	maxAttempts  = 8
)

// connect dials vetted addresses in order and gives the first connection.
func (g *Gate) connect(ctx context.Context, t policy.Target, addrs []netip.Addr) (*net.TCPConn, netip.Addr, error) {
	if len(addrs) == 1 {
		conn, err := g.attempt(ctx, t, addrs[0])
		if err != nil {
			return nil, netip.Addr{}, asDialError(ctx, t, err)
		}
		return conn, addrs[0], nil
	}
	return g.race(ctx, t, interleave(addrs))
}

type outcome struct {
	conn *net.TCPConn
	addr netip.Addr
	err  error
}

func (g *Gate) race(ctx context.Context, t policy.Target, addrs []netip.Addr) (*net.TCPConn, netip.Addr, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	addrs = addrs[:min(len(addrs), maxAttempts)]
	// Room for every outcome: a goroutine that loses never blocks.
	outcomes := make(chan outcome, len(addrs))
	started, running := 0, 0
	start := func() {
		a := addrs[started]
		started++
		running++
		go func() {
			conn, err := g.attempt(ctx, t, a)
			outcomes <- outcome{conn, a, err}
		}()
	}
	// Whoever connects after the winner is closed again; nobody waits for it
	// but the goroutine itself.
	defer func() {
		cancel()
		for range running {
			if o := <-outcomes; o.conn != nil {
				_ = o.conn.Close()
			}
		}
	}()

	delay := time.NewTimer(attemptDelay)
	defer delay.Stop()
	var first error
	start()
	for {
		select {
		case <-delay.C:
			if started < len(addrs) {
				start()
				delay.Reset(attemptDelay)
			}
		case o := <-outcomes:
			running--
			if o.err == nil {
				return o.conn, o.addr, nil
			}
			if first == nil || isDenied(o.err) {
				// The first failure belongs to the address that mattered
				// most; a refusal by policy is worth more than any of them.
				first = o.err
			}
			switch {
			case isDenied(o.err) || running == 0 && started == len(addrs):
				return nil, netip.Addr{}, asDialError(ctx, t, first)
			case started < len(addrs):
				start()
				delay.Reset(attemptDelay)
			}
		}
	}
}

// interleave alternates address families, beginning with the family of the first
// address, and keeps the order within each (RFC 8305 section 4).
func interleave(addrs []netip.Addr) []netip.Addr {
	var same, other []netip.Addr
	for _, a := range addrs {
		if a.Is4() == addrs[0].Is4() {
			same = append(same, a)
		} else {
			other = append(other, a)
		}
	}
	out := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(same), len(other)) {
		if i < len(same) {
			out = append(out, same[i])
		}
		if i < len(other) {
			out = append(out, other[i])
		}
	}
	return out
}

func (g *Gate) attempt(ctx context.Context, t policy.Target, a netip.Addr) (*net.TCPConn, error) {
	if g.dial != nil {
		return g.dial(ctx, t, a)
	}
	dialer := net.Dialer{
		// No keep-alive probes from the start: four system calls that most
		// tunnels do not live long enough to need. flow turns them on later.
		KeepAlive: -1,
		Control:   g.control(ctx, t, a),
	}
	// Not DialTCP: given no local address it binds one, and then the kernel
	// cannot use a local port for two destinations.
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(a, t.Port()).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// control is the last check, made with what the kernel is about to connect to
// and the policy of that moment. Whatever cannot be understood is refused: a
// guard that lets pass what it cannot parse is open to every spelling it did not
// think of.
func (g *Gate) control(ctx context.Context, t policy.Target, vetted netip.Addr) func(string, string, syscall.RawConn) error {
	return func(network, address string, c syscall.RawConn) error {
		peer, err := netip.ParseAddrPort(address)
		if err != nil {
			return &Denied{Target: t, Decision: g.policy().Approved(ctx).DecideAddr(t, netip.Addr{})}
		}
		a := peer.Addr().WithZone("").Unmap()
		if d := g.policy().Approved(ctx).DecideAddr(t, a); !d.Allowed {
			return &Denied{Target: t, Decision: d}
		}
		if a != vetted || peer.Port() != t.Port() {
			return fmt.Errorf("dial %s: the socket would go to %s instead of %s", t, address, vetted)
		}
		if g.Control != nil {
			return g.Control(network, address, c)
		}
		return nil
	}
}
