package sbpl

import "fmt"

// Reading is one of the ways in which public sources say a profile is read.
type Reading struct {
	// Textual takes the last rule that matches, filtered or not. Otherwise an
	// unfiltered rule is only the fallback of its operation and the last filtered
	// rule that matches wins, whatever comes after it.
	Textual bool
	// FoldCase compares literal, subpath and prefix without case, as on a volume
	// that is not case-sensitive.
	FoldCase bool
}

// Strictest is the reading that was measured, on a case-sensitive volume.
var Strictest = Reading{}

// Readings are all of them; a profile must decide alike under each.
func Readings() []Reading {
	return []Reading{{}, {FoldCase: true}, {Textual: true}, {Textual: true, FoldCase: true}}
}

func (r Reading) String() string {
	order, fold := "measured", "case-sensitive"
	if r.Textual {
		order = "textual"
	}
	if r.FoldCase {
		fold = "folding"
	}
	return order + ", " + fold
}

// Decide says whether the profile allows q, and by which rule (nil where no rule
// speaks of it, which denies, as sandbox-exec's implicit default does).
// It panics where q.Op is not a known operation: that is a fault of the caller.
func (p *Profile) Decide(q Request, how Reading) (bool, *Rule) {
	if _, ok := parents[q.Op]; !ok {
		panic(fmt.Sprintf("sbpl: unknown operation %q", q.Op))
	}
	var last, fallback *Rule
	nearest := len(parents)
	for i := range p.Rules {
		r := &p.Rules[i]
		steps, ok := r.covers(q.Op)
		switch {
		case !ok:
		case r.Filtered():
			if r.matches(q, how) {
				last = r
			}
		case how.Textual:
			last = r
		case steps <= nearest:
			fallback, nearest = r, steps
		}
	}
	if last == nil {
		last = fallback
	}
	return last != nil && last.Allow, last
}

// DecideAll decides under every reading and fails where they differ.
func (p *Profile) DecideAll(q Request) (bool, error) {
	first, by := p.Decide(q, Readings()[0])
	for _, how := range Readings()[1:] {
		if got, rule := p.Decide(q, how); got != first {
			return false, fmt.Errorf("decide %s %s%s: %v by %s when read %s, %v by %s when read %s",
				q.Op, q.Path, q.Name, first, by.where(), Readings()[0], got, rule.where(), how)
		}
	}
	return first, nil
}

// Without returns the profile less its rule i: what a mutation test needs.
func (p *Profile) Without(i int) *Profile {
	rules := append([]Rule(nil), p.Rules[:i]...)
	return &Profile{Rules: append(rules, p.Rules[i+1:]...)}
}

func (r *Rule) where() string {
	if r == nil {
		return "no rule"
	}
	return fmt.Sprintf("line %d", r.Line)
}

func (r *Rule) covers(op string) (int, bool) {
	best, found := len(parents), false
	for _, o := range r.Ops {
		if steps, ok := level(op, o); ok && steps <= best {
			best, found = steps, true
		}
	}
	return best, found
}

func (r *Rule) matches(q Request, how Reading) bool {
	for _, f := range r.filters {
		if f.match(q, how) {
			return true
		}
	}
	return false
}
