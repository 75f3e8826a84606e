package policy

import "strconv"

// Dead is an allowing rule that can open nothing.
type Dead struct {
	Rule Rule
	// By is the rule that closes all that Rule would open; the zero Rule's text
	// "" when it is the kind of address that closes it.
	By string
	// Always says that no list of this configuration closes it but the kind of its
	// address, its name or a built-in rule.
	Always bool
	// Reason is one line of printable ASCII for whoever wrote the rule.
	Reason string
}

// Dead lists the rules that allow or ask and that a denying rule or the kind of their address
// makes useless: metadata endpoints, hosts on the deny list, 0.0.0.0, localhost
// without the flag private. Whoever loads a configuration should refuse them with
// the file and line in the reason; a session may bring them, and is refused when
// it connects.
func (s *Set) Dead() []Dead {
	if s == nil || s.closed != 0 {
		return nil
	}
	var dead []Dead
	note := func(r *Rule) {
		if d, ok := s.dead(r); ok {
			dead = append(dead, d)
		}
	}
	for _, rules := range [][]Rule{s.lists.Allow, s.lists.Ask, s.added} {
		for i := range rules {
			note(&rules[i])
		}
	}
	for i := s.listed[0].begin; i < s.listed[0].end; i++ {
		if r, err := s.base.entries[i].rule(); err == nil {
			note(&r)
		}
	}
	return dead
}

func (s *Set) dead(r *Rule) (Dead, bool) {
	from := func() string {
		return r.Origin.String() + ": the rule " + strconv.Quote(r.text) + " can open nothing: "
	}
	d := Dead{Rule: *r, Always: true}
	if r.shape == shapeAddr {
		if class := classOf(r.prefix); class != Invalid && class.never() && class != Metadata && class != LinkLocal {
			d.Reason = from() + "it is " + class.Sentence()
			return d, true
		}
	}
	if r.shape == shapeExact && thisMachine(r.name) && !r.private {
		d.Reason = from() + "the name means this machine, which needs the flag private"
		return d, true
	}
	var by *entry
	for _, port := range portsOf(r, allow) {
		by = s.closedBy(r, question{port: port, schemes: flagsOf(r, allow) & anyScheme})
		if by == nil {
			return Dead{}, false
		}
	}
	d.By, d.Always = by.text, *by.file == builtinOrigin.File
	d.Reason = from() + "the rule " + strconv.Quote(by.text) + " (" + by.from() + ") denies it"
	return d, true
}

// closedBy gives a rule that denies everything of the pattern on the port in all of the
// schemes, where anyPort asks for a denial of every port.
func (s *Set) closedBy(r *Rule, q question) *entry {
	var m match
	if r.shape == shapeAddr {
		s.base.denials(r.prefix, q, &m)
		if a := r.prefix.Addr(); r.prefix.IsSingleIP() {
			e := embedded(a)
			s.denyAddr(a, &e, q, &m)
		}
	} else {
		// A star is no byte of a name, so the pattern itself finds just the
		// wildcards that cover all of it.
		s.base.name(r.host(), q, &m)
	}
	if m.always != nil {
		return m.always
	}
	return m.denied
}
