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
func (s *Set) Decide(t Target) (d Decision) {
	var m match
	s.decide(t, &m, &d)
	return d
}

// decide fills d, which is a refusal when it comes in and named by a pointer since
// it is too large to hand around.
func (s *Set) decide(t Target, m *match, d *Decision) {
	d.target = t
	switch {
	case s == nil:
		d.Code, d.closed = PolicyGone, noPolicy
	case s.closed != 0:
		d.Code, d.closed = s.closed, s.reason
	case t.IsZero():
	case t.host.name == "":
		s.decideLiteral(t.host.addr, m, d)
	default:
		s.decideName(t.host.name, m, d)
	}
}

func (s *Set) decideName(name string, m *match, d *Decision) {
	port, q := d.target.port, d.target.question()
	local := thisMachine(name)
	if local && (s.isOwn(loopback4, port) || s.isOwn(netip.IPv6Loopback(), port)) {
		d.Code = OwnListener
		return
	}
	s.base.name(name, q, m)
	if s.extra != nil {
		s.extra.name(name, q, m)
	}
	d.from(m)
	if local && m.private == nil {
		if d.Allowed || d.Code == AskFirst {
			d.class = Loopback
			d.refuse(AddressClass)
		}
		return
	}
	s.soften(d)
}

var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func (s *Set) decideLiteral(a netip.Addr, m *match, d *Decision) {
	port, q := d.target.port, d.target.question()
	d.class, _ = Classify(a)
	e := embedded(a)
	if s.ownAny(a, &e, port) {
		d.Code = OwnListener
		return
	}
	s.base.addr(a, d.class, q, m)
	if s.extra != nil {
		s.extra.addr(a, d.class, q, m)
	}
	s.denyAddr(a, &e, q, m)
	d.from(m)
	if d.class.never() {
		if d.Code != AlwaysDenied && d.Code != Denied {
			d.refuse(AddressClass)
		}
		return
	}
	if d.class == Public || m.allowed != nil || m.ask != nil {
		s.soften(d)
	}
}

// soften turns a refusal by the lists into a question, where everything is asked
// about, and into a report, where nothing is enforced.
func (s *Set) soften(d *Decision) {
	if s.lists.AskAny && d.Liftable() && d.Code != AskFirst {
		d.Code, d.Rule, d.Source, d.ports, d.near = AskFirst, "", "", nil, nil
	}
	if s.report && (d.Liftable() || d.Code == Denied) {
		d.Allowed, d.would = true, true
	}
}

// from draws the verdict from what matched.
func (d *Decision) from(m *match) {
	switch {
	case m.always != nil:
		d.by(AlwaysDenied, m.always)
	case m.denied != nil:
		d.by(Denied, m.denied)
	case m.tcp != nil:
		d.Allowed, d.TCP = true, true
		d.by(Allow, m.tcp)
	case m.allowed != nil:
		d.Allowed = true
		d.by(Allow, m.allowed)
	case m.ask != nil:
		d.by(AskFirst, m.ask)
	case m.scheme != nil:
		d.by(SchemeNotAllowed, m.scheme)
	case m.portsRule != nil:
		d.ports = m.ports
		d.by(PortNotAllowed, m.portsRule)
	case m.asksRule != nil:
		d.ports = m.askPorts
		d.by(PortNotAllowed, m.asksRule)
	default:
		d.Code, d.near = NotAllowed, m.apex
	}
}

func (d *Decision) by(c Code, e *entry) {
	d.Code, d.Rule, d.Source = c, e.text, e.from()
}

// refuse takes a permission back; the rule that gave it stays named.
func (d *Decision) refuse(c Code) {
	d.Allowed, d.TCP, d.would, d.Code = false, false, false, c
}

// DecideAddr judges one address that a connection to the target would go to: each
// answer of the lookup, and once more the peer in Dialer.Control. It judges the
// target again as well, so a decision never outlives its rule.
//
// Zone and IPv4-mapped form are taken off and IPv4 addresses inside IPv6 are
// unwrapped before anything is compared. An address outside the class Public needs
// an allowing rule with the flag private, and even then must be of a class that
// Class.ByName names. For a target that is an address, it must be that address.
func (s *Set) DecideAddr(t Target, a netip.Addr) (d Decision) {
	var m match
	s.decide(t, &m, &d)
	if !d.Allowed {
		return d
	}
	a = canonical(a)
	d.addr = a
	if literal, ok := t.host.Addr(); ok {
		if literal != a {
			d.refuse(AddressClass)
		}
		return d
	}
	class, inner := Classify(a)
	d.class = class
	if class == Invalid {
		d.refuse(AddressClass)
		return d
	}
	e := embedded(a)
	if s.ownAny(a, &e, t.port) {
		return Decision{Code: OwnListener, target: t, addr: a, class: class}
	}
	// Only the denying rules for the address count: allowing it as a literal does
	// not allow a name that resolves to it.
	var at match
	s.denyAddr(a, &e, t.question(), &at)
	if at.always != nil || at.denied != nil {
		d.refuse(Denied)
		d.from(&at)
		if at.always != nil || !s.report {
			return d
		}
		d.Allowed, d.would = true, true // and the class still has its say
	}
	local := thisMachine(t.host.name)
	switch {
	case (class == Public || s.ranges.public(class, inner)) && !local:
	case !local && s.ranges.private(t.host, class, a, inner):
	case m.private != nil && class.ByName() && inner == a && (class == Loopback || !local):
		if !d.TCP && !d.would {
			d.by(Allow, m.private)
		}
	default:
		d.refuse(AddressClass)
	}
	return d
}

// denyAddr adds what denies an address or an address inside it. Added rules allow
// only, so the base has all the denials.
func (s *Set) denyAddr(a netip.Addr, e *carried, q question, m *match) {
	s.base.denials(netip.PrefixFrom(a, a.BitLen()), q, m)
	for _, inner := range e.list() {
		s.base.denials(netip.PrefixFrom(inner, inner.BitLen()), q, m)
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
