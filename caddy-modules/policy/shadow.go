package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Shadow is a rule that changes nothing: one that allows, where others open all it
// would, or one that stands in its list already. Where a denying rule was meant to bite
// between two that allow, it is worth a look.
type Shadow struct {
	Rule Rule
	// By is the text of the rule that covers it, or the first of them.
	By string
	// Reason is one line of printable ASCII for whoever wrote the rule.
	Reason string
}

// Shadowed lists allowing rules that wider ones cover, in ports and flags as well, and
// rules that stand in a list twice; most of them at most.
func (s *Set) Shadowed(most int) []Shadow {
	if s == nil || s.closed != 0 {
		return nil
	}
	found := slices.Clone(s.twice[:min(most, len(s.twice))])
	note := func(r *Rule) bool {
		if by := s.base.covers(r); by != nil {
			found = append(found, Shadow{Rule: *r, By: by.text, Reason: shadowReason(r, by.text, by.from())})
		}
		return len(found) < most
	}
	for i := range s.lists.Allow {
		if len(found) >= most || !note(&s.lists.Allow[i]) {
			return found
		}
	}
	for i := s.listed[0].begin; i < s.listed[0].end; i++ {
		if r, err := s.base.entries[i].rule(); err == nil && !note(&r) {
			return found
		}
	}
	return found
}

func shadowReason(r *Rule, by, from string) string {
	return r.Origin.String() + ": the rule " + strconv.Quote(r.text) + " opens nothing more than the rule " + strconv.Quote(by) + " (" + from + ") does"
}

// keptTwice bounds how many repetitions are remembered.
const keptTwice = 10

func (s *Set) repeated(r *Rule, first Origin) {
	if len(s.twice) < keptTwice {
		s.twice = append(s.twice, Shadow{
			Rule: *r, By: r.text,
			Reason: r.Origin.String() + ": the rule " + strconv.Quote(r.text) + " stands at " + first.String() + " already",
		})
	}
}

// covers gives a rule that opens a port of r as r does, where each of its ports has one.
func (x *index) covers(r *Rule) (by *entry) {
	for _, port := range portsOf(r, allow) {
		g := x.cover(r, grant{port: port, flags: flagsOf(r, allow) &^ flagUnder})
		if g == nil {
			return nil
		}
		if by == nil {
			by = &x.entries[g.rule]
		}
	}
	return by
}

// cover finds a grant of another rule for all that r matches, with the port and the
// flags of want at least.
func (x *index) cover(r *Rule, want grant) *grant {
	among := func(gs []grant, shape flags) *grant {
		for i := range gs {
			g := &gs[i]
			if g.kind == allow && g.flags&flagUnder == shape && (g.port == anyPort || g.port == want.port) &&
				g.flags&want.flags == want.flags && x.entries[g.rule].text != r.text {
				return g
			}
		}
		return nil
	}
	if r.shape == shapeAddr {
		return x.coverAddr(r.prefix, among)
	}
	if n := x.names.find(r.name); n != nil {
		switch r.shape {
		case shapeMiddle:
			if g := among(n.middle(r.head), 0); g != nil {
				return g
			}
		case shapeUnder:
			if g := among(n.grants(), flagUnder); g != nil {
				return g
			}
		default:
			if g := among(n.grants(), 0); g != nil {
				return g
			}
		}
	}
	name, ahead := r.host(), ""
	if r.shape == shapeUnder {
		name = r.name
	}
	for {
		label, rest, more := strings.Cut(name, ".")
		if !more {
			return nil
		}
		if n := x.names.find(rest); n != nil {
			if g := among(n.grants(), flagUnder); g != nil {
				return g
			}
			if ahead != "" && r.shape == shapeExact {
				if g := among(n.middle(ahead), 0); g != nil {
					return g
				}
			}
		}
		// What stands before the label that a middle star would be.
		if ahead != "" {
			ahead += "."
		}
		ahead += label
		name = rest
	}
}

func (x *index) coverAddr(p netip.Prefix, among func([]grant, flags) *grant) *grant {
	t := x.family(p.Addr())
	for i := t.longest(p.Addr()); i >= 0; i = t.spans[i].parent {
		at := &t.spans[i]
		// A prefix over several classes opens the public ones alone.
		class := classOf(p)
		if at.prefix.Bits() > p.Bits() || at.prefix != p && class != Public && class != at.value.class {
			continue
		}
		if g := among(at.value.grants, 0); g != nil {
			return g
		}
	}
	return nil
}
