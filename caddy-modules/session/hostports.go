package session

import (
	"fmt"
	"net/netip"

	"postern/caddy-modules/session/lease"
)

// givenAway marks ports that launchers lead runs to, among those that sessions had. It
// is no session's id.
const givenAway = "a host port"

// allowHostPorts refuses the ports of this host that would lead a run to another
// session's proxies or to a site of ours, past its own policy. Those that it allows no
// session gets from now on.
func (r *Registry) allowHostPorts(ports []uint16) error {
	for _, port := range ports {
		if !r.ports.giveAway(port) || r.own.match(netip.AddrPortFrom(netip.IPv6Loopback(), port)) {
			return &lease.Error{Code: lease.CodeOwnPort, Message: fmt.Sprintf("port %d of this host is the appliance's own: whoever is led there has other rights than the run's", port)}
		}
	}
	return nil
}

// giveAway takes a port out of those that sessions get, if none ever had it.
func (p *ports) giveAway(port uint16) bool {
	if p.err != nil || port < p.first || port > p.last {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if by, given := p.had[port]; given && by != givenAway {
		return false
	}
	p.had[port] = givenAway
	return true
}
