package nameguard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxRules bounds the rules of one run, and maxNames the paths under which its
// directories are seen.
const (
	maxRules = 1 << 16
	maxNames = 256
)

// Rules are the rules of one run, compiled. They do not change, and any number of
// goroutines may ask them.
type Rules struct {
	roots      states // of every path: the node at / and that of every directory
	first      *filter
	packages   []string
	free       []freed
	starts     []start
	trapRemove bool
	moveOut    *Rule // what a directory breaks that leaves packages
}

// freed is a free directory by one of its names, and what a directory breaks that leaves it.
type freed struct {
	at      string
	moveOut Rule
}

// start is a directory that is also seen elsewhere: below at, paths go on from the states
// of that other place.
type start struct {
	at       string
	states   states
	packaged bool  // the other place lies in packages
	denied   *Rule // the other place lies in what is forbidden
}

// Compile reads the rules once. Everything that cannot be honoured exactly is an error,
// all of which are told, each with the text of its rule and where it stands.
func Compile(c Config) (*Rules, error) {
	if n := len(c.Globs) + len(c.Names) + len(c.Paths) + len(c.Below); n > maxRules {
		return nil, fmt.Errorf("compile rules for names: %d rules, at most %d", n, maxRules)
	}
	rooted, floating := &node{}, &node{loop: true}
	r := &Rules{roots: states{rooted, floating}, packages: slices.Clone(c.Packages), trapRemove: c.TrapRemove}
	var errs []error
	for i, list := range [][]Rule{c.Globs, c.Names} {
		for _, rule := range list {
			p, err := Parse(rule.Text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", rule.Source, err))
				continue
			}
			from := floating
			if p.Rooted {
				from = rooted
			}
			from.lay(p, &rule, i == 1).end(&rule, i == 1)
		}
	}
	for _, rule := range c.Paths {
		if err := checkPath(rule.Text); err != nil {
			errs = append(errs, fmt.Errorf("%s: forbid path: %w", rule.Source, err))
			continue
		}
		rooted.lay(literal(rule.Text), &rule, false).end(&rule, false)
	}
	for i := range c.Below {
		b := &c.Below[i]
		p, err := b.pattern()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: forbid below a folder: %w", b.Source, err))
			continue
		}
		rule := &Rule{Text: b.Dir + "/" + AnyDepth + "/" + b.Text, Source: b.Source}
		rooted.lay(p, rule, false).end(rule, false)
	}
	for _, name := range c.Packages {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			errs = append(errs, fmt.Errorf("packages: %q is not the name of a directory", clip(name)))
		}
	}
	aliases, err := closure(c.Aliases)
	if err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, r.setFree(c.Free, aliases)...)
	r.first = filterOf(floating)
	r.setStarts(aliases)
	if len(c.Names) > 0 && len(c.Packages) > 0 {
		r.moveOut = &Rule{Text: MoveOut + c.Packages[0], Source: c.Names[0].Source}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("compile rules for names: %w", errors.Join(errs...))
	}
	return r, nil
}

// literal is a path as a pattern, in which nothing is a wildcard.
func literal(path string) Pattern {
	parts := strings.Split(path[1:], "/")
	return Pattern{Rooted: true, Parts: parts, names: len(parts)}
}

// pattern is one that holds at any depth below a directory.
func (b *Below) pattern() (Pattern, error) {
	if err := checkPath(b.Dir); err != nil {
		return Pattern{}, err
	}
	p, err := Parse(b.Text)
	if err != nil {
		return Pattern{}, err
	}
	if p.Rooted {
		return Pattern{}, fmt.Errorf("%q begins with a slash; it is about what is below %s", clip(b.Text), clip(b.Dir))
	}
	at := literal(b.Dir)
	at.Parts = append(append(at.Parts, AnyDepth), p.Parts...)
	return at, nil
}

// setFree notes the free directories under all their names, and pins them: one that was
// moved away would take what was made in it to where the rules hold.
func (r *Rules) setFree(dirs []string, aliases [][]string) (errs []error) {
	rooted := r.roots[0]
	for _, dir := range dirs {
		if err := checkPath(dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", SourceFree, err))
			continue
		}
		for _, at := range otherNames(dir, aliases) {
			if inside, other := shownElsewhere(at, aliases); inside != "" {
				errs = append(errs, fmt.Errorf("%s %s: %s in it is also %s, where the rules hold; declare that free as well", SourceFree, clip(dir), clip(inside), clip(other)))
			}
			if rule := reaches(rooted, at); rule != nil {
				errs = append(errs, fmt.Errorf("%s %s: %s (%s) forbids what is there; take one of the two back", SourceFree, clip(dir), clip(rule.Text), rule.Source))
			}
			r.free = append(r.free, freed{at, Rule{Text: MoveOut + at, Source: SourceFree}})
		}
	}
	if len(errs) > 0 {
		return errs
	}
	for i := range r.free {
		pinPath(rooted, &Rule{Text: r.free[i].at, Source: SourceFree})
	}
	return nil
}

// shownElsewhere is a directory in dir that has another name outside.
func shownElsewhere(dir string, aliases [][]string) (inside, other string) {
	for _, set := range aliases {
		for _, at := range set {
			if rest, ok := below([]byte(at), dir); !ok || len(rest) == 0 {
				continue
			}
			for _, other := range set {
				if _, ok := below([]byte(other), dir); !ok {
					return at, other
				}
			}
		}
	}
	return "", ""
}

// pinPath pins what is at a path, and its ancestors.
func pinPath(rooted *node, rule *Rule) {
	rooted.lay(literal(rule.Text), rule, false).pin(rule, false)
}

// reaches is the rule from node that ends at path, above it, or can end below it.
func reaches(from *node, path string) *Rule {
	now := states{from}
	for part := range strings.SplitSeq(path[1:], "/") {
		now = now.step([]byte(part), isASCII(part), &filter{}, nil, nil)
		for _, s := range now {
			if rule := either(s.always, s.outside); rule != nil {
				return rule
			}
		}
	}
	for _, s := range now {
		if rule := either(s.pins, s.pinsOutside); rule != nil {
			return rule
		}
	}
	return nil
}

func either(a, b *Rule) *Rule {
	if a != nil {
		return a
	}
	return b
}

// setStarts runs the automaton to the other places of each directory that has some. Each
// of them is pinned with its ancestors: it is told by its path.
func (r *Rules) setStarts(aliases [][]string) {
	for _, set := range aliases {
		for _, at := range set {
			pinPath(r.roots[0], &Rule{Text: at, Source: SourceMount})
		}
	}
	// What is mounted may be a file, of which only the entry itself says so.
	for _, s := range r.elsewhere(aliases) {
		if s.denied != nil {
			r.roots[0].lay(literal(s.at), s.denied, false).end(s.denied, false)
		}
	}
	r.starts = r.elsewhere(aliases)
}

// elsewhere are the other places of each directory.
func (r *Rules) elsewhere(aliases [][]string) (out []start) {
	for _, set := range aliases {
		for _, at := range set {
			for _, other := range set {
				if other != at {
					out = append(out, r.startAt(at, other))
				}
			}
		}
	}
	return out
}

// startAt runs the automaton to other, for what is below at.
func (r *Rules) startAt(at, other string) start {
	s := start{at: at, states: r.roots}
	for part := range strings.SplitSeq(other[1:], "/") {
		s.states = s.states.step([]byte(part), isASCII(part), r.first, nil, nil)
		if s.denied = s.states.forbidding(s.packaged); s.denied != nil {
			break
		}
		s.packaged = s.packaged || r.isPackages([]byte(part))
	}
	return s
}
