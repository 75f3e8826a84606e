package policy

import "net/netip"

// noPolicy is the reason of a nil Set.
const noPolicy = "no policy is loaded"

// Decide judges a target before anything is looked up. For a name it is the
// permission to resolve it, not yet to connect: DecideAddr has the last word. For
// an address it is the whole decision.
//
// An address is allowed by a rule for that very address, or for a prefix around
// it; a prefix over several classes of addresses opens the public ones alone. Names
// under localhost mean this machine and need a rule with the exact name and the
// flag private.
func (s *Set) Decide(t Target) Decision {
	var m match
	return s.decide(t, &m)
}

func (s *Set) decide(t Target, m *match) Decision {
	d := Decision{target: t}
	switch {
	case s == nil:
		d.Code, d.closed = PolicyGone, noPolicy
		return d
	case s.closed != 0:
		d.Code, d.closed = s.closed, s.reason
		return d
	case t.IsZero():
		return d
	}
	if t.host.addr.IsValid() {
		return s.decideLiteral(d, m)
	}
	local := thisMachine(t.host.name)
	if local && (s.isOwn(loopback4, t.port) || s.isOwn(netip.IPv6Loopback(), t.port)) {
		d.Code = OwnListener
		return d
	}
	s.base.name(t.host.name, t.port, m)
	if s.extra != nil {
		s.extra.name(t.host.name, t.port, m)
	}
	d = d.from(m)
	if d.Allowed && local && m.private == nil {
		d.Allowed, d.TCP, d.Code, d.class = false, false, AddressClass, Loopback
	}
	return d
}

var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func (s *Set) decideLiteral(d Decision, m *match) Decision {
	a, port := d.target.host.addr, d.target.port
	d.class, _ = Classify(a)
	e := embedded(a)
	if s.ownAny(a, &e, port) {
		d.Code = OwnListener
		return d
	}
	s.addr(a, d.class, port, m)
	s.denyCarried(&e, port, m)
	d = d.from(m)
	if d.class.never() && (d.Allowed || d.Code == NotAllowed || d.Code == PortNotAllowed) {
		d.Allowed, d.TCP, d.Code = false, false, AddressClass
	}
	return d
}

// from draws the verdict from what matched.
func (d Decision) from(m *match) Decision {
	switch {
	case m.hit[alwaysDeny] != nil:
		return d.by(AlwaysDenied, m.hit[alwaysDeny])
	case m.hit[deny] != nil:
		return d.by(Denied, m.hit[deny])
	case m.hit[allow] != nil:
		d.Allowed = true
		if m.tcp != nil {
			d.TCP = true
			return d.by(Allow, m.tcp)
		}
		return d.by(Allow, m.hit[allow])
	case len(m.ports) > 0:
		d.ports = m.ports
		return d.by(PortNotAllowed, &m.ports[0])
	default:
		d.Code, d.near = NotAllowed, m.apex
		return d
	}
}

func (d Decision) by(c Code, g *grant) Decision {
	d.Code, d.Rule, d.Source = c, g.rule.text, g.rule.source
	return d
}

// DecideAddr judges one address that a connection to the target would go to: each
// answer of the lookup, and once more the peer in Dialer.Control. It judges the
// target again as well, so a decision never outlives its rule.
//
// Zone and IPv4-mapped form are taken off and IPv4 addresses inside IPv6 are
// unwrapped before anything is compared. An address outside the class Public needs
// an allowing rule with the flag private, and even then must be of a class that
// Class.ByName names. For a target that is an address, it must be that address.
func (s *Set) DecideAddr(t Target, a netip.Addr) Decision {
	var m match
	d := s.decide(t, &m)
	if !d.Allowed {
		return d
	}
	a = canonical(a)
	d.addr = a
	if literal, ok := t.host.Addr(); ok {
		if literal != a {
			d.Allowed, d.TCP, d.Code = false, false, AddressClass
		}
		return d
	}
	class, inner := Classify(a)
	d.class = class
	if class == Invalid {
		d.Allowed, d.TCP, d.Code = false, false, AddressClass
		return d
	}
	e := embedded(a)
	if s.ownAny(a, &e, t.port) {
		return Decision{Code: OwnListener, target: t, addr: a, class: class}
	}
	// Only the denying rules for the address count: allowing it as a literal does
	// not allow a name that resolves to it.
	var at match
	s.addr(a, class, t.port, &at)
	s.denyCarried(&e, t.port, &at)
	at.hit[allow], at.ports = nil, nil
	if at.hit[alwaysDeny] != nil || at.hit[deny] != nil {
		refused := Decision{target: t, addr: a, class: class}
		return refused.from(&at)
	}
	local := thisMachine(t.host.name)
	switch {
	case class == Public && !local:
	case m.private != nil && class.ByName() && inner == a && (class == Loopback || !local):
		if !d.TCP {
			d = d.by(Allow, m.private)
		}
	default:
		d.Allowed, d.TCP, d.Code = false, false, AddressClass
	}
	return d
}

func (s *Set) addr(a netip.Addr, class Class, port uint16, m *match) {
	s.base.addr(a, class, port, m)
	if s.extra != nil {
		s.extra.addr(a, class, port, m)
	}
}

// denyCarried adds what denies an address inside the address.
func (s *Set) denyCarried(e *carried, port uint16, m *match) {
	for _, inner := range e.list() {
		var in match
		// The class does not matter to rules that deny.
		s.base.addr(inner, Invalid, port, &in)
		for _, k := range []kind{alwaysDeny, deny} {
			if m.hit[k] == nil {
				m.hit[k] = in.hit[k]
			}
		}
	}
}

func (s *Set) ownAny(a netip.Addr, e *carried, port uint16) bool {
	if s.isOwn(a, port) {
		return true
	}
	for _, inner := range e.list() {
		if s.isOwn(inner, port) {
			return true
		}
	}
	return false
}

func (s *Set) isOwn(a netip.Addr, port uint16) bool {
	return s.own != nil && s.own(netip.AddrPortFrom(a, port))
}
