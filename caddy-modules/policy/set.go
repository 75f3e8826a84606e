package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Lists are the lists of a policy.
type Lists struct {
	// AlwaysDeny is closed to every policy, grant and approval. The built-in
	// rules (metadata endpoints of clouds, link-local addresses) are added to it.
	AlwaysDeny []Rule
	// Deny beats Allow, however specific the allowing rule is.
	Deny []Rule
	// Allow opens. Empty opens nothing.
	Allow []Rule
	// Ask is what an approver may open, one target at a time. It loses to the two
	// denying lists, and what Allow opens is not asked about.
	Ask []Rule
	// AllowLists and DenyLists are list files, in addition to Allow and Deny.
	AllowLists, DenyLists []*List
	// AskAny asks about everything that no rule denies or allows, except for this
	// machine and for addresses that are not public: those need a rule that names
	// them.
	AskAny bool
	// Ranges are what this network has in place of the usual meaning of addresses.
	Ranges Ranges
}

// run is a part of the entries of an index.
type run struct{ begin, end int }

// OwnFunc says that an address is one of the appliance's own listeners: the admin
// endpoint, proxies of sessions, sockets of the git gateway. It is asked with a
// canonical address and must be safe for concurrent use and quick.
type OwnFunc func(netip.AddrPort) bool

// Set is a compiled policy. It never changes; Extend makes another one. All its
// methods are safe for concurrent use. A nil Set refuses everything.
type Set struct {
	base   *index
	extra  *index // what Extend added, nil for nothing
	lists  Lists  // base rules, duplicates folded
	listed [2]run // rules of AllowLists and of DenyLists
	twice  []Shadow
	report bool   // refusals by the lists are told and not made
	added  []Rule // rules of extra
	own    OwnFunc
	ranges *Ranges
	closed Code   // NetworkOff or PolicyGone: nothing is looked at
	reason string // of closed
}

// Compile makes a Set. Rules of the same text in one list count once; rules for
// the same host add up. own may be nil where nothing listens (the check command).
//
// A rule that denies or asks with the flag private or tcp is an error, as is a Rule that ParseRule
// did not make. A rule that another list makes useless is not: a session may ask
// for anything, and is told at the connection which rule closes it. Dead lists such
// rules for those who want to refuse them at load.
func Compile(l Lists, own OwnFunc) (*Set, error) {
	if err := l.Ranges.Check(); err != nil {
		return nil, fmt.Errorf("compile policy: %w", err)
	}
	ranges := l.Ranges.clone()
	s := &Set{own: own, ranges: &ranges}
	s.lists.AskAny = l.AskAny
	builtin := builtins()
	b := newBuilder(len(builtin) + len(l.AlwaysDeny) + len(l.Deny) + len(l.Allow) + len(l.Ask) + lines(l.AllowLists) + lines(l.DenyLists))
	for i := range builtin {
		b.add(&builtin[i], alwaysDeny)
	}
	for _, list := range []struct {
		kind kind
		from []Rule
		to   *[]Rule
	}{
		{alwaysDeny, l.AlwaysDeny, &s.lists.AlwaysDeny},
		{deny, l.Deny, &s.lists.Deny},
		{allow, l.Allow, &s.lists.Allow},
		{ask, l.Ask, &s.lists.Ask},
	} {
		rules, err := fold(list.from, list.kind, s.repeated)
		if err != nil {
			return nil, err
		}
		for i := range rules {
			b.add(&rules[i], list.kind)
		}
		*list.to = rules
	}
	for i, list := range []struct {
		kind kind
		from []*List
	}{{allow, l.AllowLists}, {deny, l.DenyLists}} {
		s.listed[i].begin = len(b.entries)
		for _, file := range list.from {
			if err := b.addList(file, list.kind, s.repeated); err != nil {
				return nil, err
			}
		}
		s.listed[i].end = len(b.entries)
	}
	s.base = b.build()
	return s, nil
}

// fold checks the rules of one list and drops repetitions, of which it tells; the first
// one stays.
func fold(rules []Rule, k kind, tell func(*Rule, Origin)) ([]Rule, error) {
	seen := make(map[string]Origin, len(rules))
	out := make([]Rule, 0, len(rules))
	for _, r := range rules {
		if err := checkKind(&r, k); err != nil {
			return nil, err
		}
		if first, ok := seen[r.text]; ok {
			if tell != nil {
				tell(&r, first)
			}
			continue
		}
		seen[r.text] = r.Origin
		out = append(out, r)
	}
	return out, nil
}

// checkKind refuses what cannot stand in a list.
func checkKind(r *Rule, k kind) error {
	if r.shape == shapeNone {
		return errors.New("compile policy: a rule is empty: only ParseRule makes rules")
	}
	if k != allow && (r.private || r.tcp) {
		what := "denies"
		if k == ask {
			what = "asks"
		}
		return fmt.Errorf("%s: compile policy: rule %q %s: the flags private and tcp belong to rules that allow", r.Origin, r.text, what)
	}
	return nil
}

// Closed is a Set that refuses everything with PolicyGone and the given reason,
// one sentence for a person: a session whose policy left the configuration.
func Closed(reason string) *Set {
	return &Set{closed: PolicyGone, reason: printable(reason)}
}

// Off is a Set that refuses everything with NetworkOff: a session that was started
// without network. Nothing added to it opens anything.
func Off() *Set {
	return &Set{closed: NetworkOff, reason: "network access is off for this session"}
}

// Reporting is a Set that decides as s does, and lets through what only the lists
// refuse: Decision.WouldDeny then tells what enforcing would have done. What no
// approval opens stays closed: always-deny, own listeners, classes of addresses,
// addresses that are not public and that no rule names.
func (s *Set) Reporting() *Set {
	if s == nil || s.closed != 0 || s.report {
		return s
	}
	next := *s
	next.report = true
	return &next
}

// Reports says that s is the result of Reporting.
func (s *Set) Reports() bool { return s != nil && s.report }

// Approve is s with one target opened, as an approver's yes for one connection does
// it. from is told by decisions. It opens nothing else: not another port, and no
// class of addresses that a rule without the flag private leaves closed.
func (s *Set) Approve(t Target, from Origin) (*Set, error) {
	if t.IsZero() {
		return nil, errors.New("approve a target: it is empty")
	}
	r, err := ParseRule(t.Rule(), from)
	if err != nil {
		return nil, fmt.Errorf("approve %s: %w", t, err)
	}
	return s.Extend([]Rule{r})
}

// Extend adds allowing rules, as a session brings them or a grant gives them. The
// result shares everything with s; time and memory are those of the rules ever
// added, not those of the base. Deny rules of s go on beating the added ones. A
// closed Set stays closed.
func (s *Set) Extend(rules []Rule) (*Set, error) {
	if s == nil || s.closed != 0 {
		return s, nil
	}
	added, err := fold(append(slices.Clone(s.added), rules...), allow, nil)
	if err != nil {
		return nil, err
	}
	if len(added) == len(s.added) {
		return s, nil
	}
	b := newBuilder(len(added))
	for i := range added {
		b.add(&added[i], allow)
	}
	next := *s
	next.added = added
	next.extra = b.build()
	return &next, nil
}

// Lists gives the rules in force, duplicates folded, the built-in ones left out
// those of list files among Allow and Deny, and the added ones at the end of Allow. The
// slices are the caller's.
func (s *Set) Lists() Lists {
	if s == nil || s.closed != 0 {
		return Lists{}
	}
	return Lists{
		AlwaysDeny: slices.Clone(s.lists.AlwaysDeny),
		Deny:       slices.Concat(s.lists.Deny, s.rulesOf(s.listed[1])),
		Allow:      slices.Concat(s.lists.Allow, s.rulesOf(s.listed[0]), s.added),
		Ask:        slices.Clone(s.lists.Ask),
		AskAny:     s.lists.AskAny,
		Ranges:     s.ranges.clone(),
	}
}

// rulesOf reads the rules of list files once more: their entries are all that is kept.
func (s *Set) rulesOf(part run) []Rule {
	rules := make([]Rule, 0, part.end-part.begin)
	for i := part.begin; i < part.end; i++ {
		if r, err := s.base.entries[i].rule(); err == nil { // a canonical text has no other outcome
			rules = append(rules, r)
		}
	}
	return rules
}

func (e *entry) rule() (Rule, error) {
	if r, ok := quickRule(e.text, e.origin()); ok {
		return r, nil
	}
	return ParseRule(e.text, e.origin())
}
