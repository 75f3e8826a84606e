package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"postern/caddy-modules/policy"
)

// DefaultPorts is the range of Options.Ports when it is empty.
const DefaultPorts = "20000-29999"

// ports gives out the TCP ports of API sessions.
//
// A port is never given to a second session while the process lives: a process
// that a run left behind may still hold the old address, and would speak with
// the new session's rights. Only the session that had a port gets it again, when
// it asks for it by name.
type ports struct {
	first, last uint16
	err         error // the range did not parse; everything fails with it

	mu   sync.Mutex
	next uint16
	had  map[uint16]string // who a port was given to, by id
}

func newPorts(text string) *ports {
	if text == "" {
		text = DefaultPorts
	}
	p := &ports{had: map[uint16]string{}}
	if p.first, p.last, p.err = parseRange(text); p.err == nil {
		// Not always from the first: after a restart, hosts PUT their sessions
		// again with the ports they had, and those would be taken first.
		p.next = p.first + uint16(rand.N(int(p.last-p.first)+1)) //nolint:gosec // G404 no secret, G115 within the range
	}
	return p
}

func parseRange(text string) (first, last uint16, err error) {
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, fmt.Errorf("parse port range %q: want FIRST-LAST, as in %s", text, DefaultPorts)
	}
	if first, err = policy.ParsePort(a); err == nil {
		last, err = policy.ParsePort(b)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("parse port range %q: %w", text, err)
	}
	if first >= last {
		return 0, 0, fmt.Errorf("parse port range %q: want at least two ports, the lower one first", text)
	}
	return first, last, nil
}

// listen binds address, or a port that was never given out when it is empty.
func (p *ports) listen(ctx context.Context, id, address string) (*net.TCPListener, error) {
	if p.err != nil {
		return nil, p.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if address != "" {
		return p.again(ctx, id, address)
	}
	// Each port is tried once: those in use elsewhere are passed over and may be
	// free later, those given out stay given out.
	for range int(p.last-p.first) + 1 {
		port := p.next
		if p.next++; p.next > p.last || p.next < p.first {
			p.next = p.first
		}
		if _, given := p.had[port]; given {
			continue
		}
		ln, err := listenTCP(ctx, port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.had[port] = id
		return ln, nil
	}
	return nil, fmt.Errorf("no port from %d to %d is left: a port is never given to two sessions while the appliance runs; enlarge the range or restart", p.first, p.last)
}

// again binds the port that address names, if nobody else ever had it.
func (p *ports) again(ctx context.Context, id, address string) (*net.TCPListener, error) {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("parse listen address %q: %w", address, err)
	}
	port := ap.Port()
	if port < p.first || port > p.last {
		return nil, fmt.Errorf("listen on %s: the ports of sessions are %d to %d", address, p.first, p.last)
	}
	if other, given := p.had[port]; given && other != id {
		return nil, fmt.Errorf("listen on %s: the port was given to session %q; leave the address out to get another", address, other)
	}
	ln, err := listenTCP(ctx, port)
	if err != nil {
		return nil, err
	}
	p.had[port] = id
	return ln, nil
}

// listenTCP binds a port of 127.0.0.1, never with SO_REUSEPORT: another process
// of this user could then bind it too and would be given half the connections.
func listenTCP(ctx context.Context, port uint16) (*net.TCPListener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // of no use on loopback
	ln, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil //nolint:forcetypeassert // network "tcp4" has no other
}
