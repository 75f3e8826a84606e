package session

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// own knows the ports this process listens on. No rule opens a way to them: a
// run that could reach another session's proxy, or the admin endpoint, would
// have that one's rights.
type own struct {
	mu    sync.RWMutex
	ports map[uint16]int // uses of a port, by sessions and by sets
	sets  map[any][]netip.AddrPort

	// interfaces lists the addresses of this host; a variable for tests.
	interfaces func() ([]net.Addr, error)

	seenMu sync.Mutex
	seen   map[netip.Addr]bool
	seenAt time.Time
}

// interfacesFor is how long a list of this host's addresses is believed. It is
// asked for only when somebody dials one of our ports at an address that is not
// loopback, so it need not be fresher than an address is quick to appear.
const interfacesFor = 2 * time.Second

func newOwn() *own {
	return &own{ports: map[uint16]int{}, sets: map[any][]netip.AddrPort{}, interfaces: net.InterfaceAddrs}
}

// match reports whether ap is one of ours: an own port at loopback, at the
// unspecified address (which connects to loopback), or at any address of this
// host. It does not matter which of them the listener is bound to.
func (o *own) match(ap netip.AddrPort) bool {
	o.mu.RLock()
	uses := o.ports[ap.Port()]
	o.mu.RUnlock()
	if uses == 0 {
		return false
	}
	a := ap.Addr().WithZone("").Unmap()
	return !a.IsValid() || a.IsLoopback() || a.IsUnspecified() || o.onHost(a)
}

func (o *own) onHost(a netip.Addr) bool {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	if o.seen == nil || time.Since(o.seenAt) > interfacesFor {
		addrs, err := o.interfaces()
		if err != nil {
			return true // unknown is ours: the careful answer
		}
		o.seen, o.seenAt = make(map[netip.Addr]bool, len(addrs)), time.Now()
		for _, addr := range addrs {
			if p, err := netip.ParsePrefix(addr.String()); err == nil {
				o.seen[p.Addr().WithZone("").Unmap()] = true
			}
		}
	}
	return o.seen[a]
}

// set replaces the addresses that key stands for; none removes it.
func (o *own) set(key any, addrs []netip.AddrPort) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ap := range addrs {
		o.use(ap.Port(), 1)
	}
	for _, ap := range o.sets[key] {
		o.use(ap.Port(), -1)
	}
	if len(addrs) == 0 {
		delete(o.sets, key)
		return
	}
	o.sets[key] = append([]netip.AddrPort(nil), addrs...)
}

func (o *own) use(port uint16, by int) {
	if o.ports[port] += by; o.ports[port] <= 0 {
		delete(o.ports, port)
	}
}

// tcpAddrs returns the addresses of the TCP listeners among lns.
func tcpAddrs(lns []net.Listener) []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, ln := range lns {
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			addrs = append(addrs, a.AddrPort())
		}
	}
	return addrs
}
