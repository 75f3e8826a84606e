package nameguard

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// reference answers as Check should, without automaton, buffers or filters: it compares
// the parts of every path with the parts of every pattern.
type reference struct{ Config }

type slow struct {
	Pattern
	outside bool
}

func (r *reference) patterns() (out []slow) {
	for i, list := range [][]Rule{r.Globs, r.Names} {
		for _, rule := range list {
			p, err := Parse(rule.Text)
			if err != nil {
				panic(err)
			}
			out = append(out, slow{p, i == 1})
		}
	}
	for _, rule := range r.Paths {
		out = append(out, slow{literal(rule.Text), false})
	}
	for _, b := range r.Below {
		p, err := Parse(b.Text)
		if err != nil {
			panic(err)
		}
		dir := split(b.Dir)
		out = append(out, slow{Pattern{Rooted: true, Parts: slices.Concat(dir, []string{AnyDepth}, p.Parts), names: len(dir)}, false})
	}
	return out
}

// part is one of a pattern's, and whether there can be wildcards in it.
type part struct {
	text string
	wild bool
}

func (p *slow) parts() (out []part) {
	for i, text := range p.Parts {
		out = append(out, part{text, i >= p.names && strings.ContainsAny(text, "*?")})
	}
	return out
}

// all are the paths of one directory.
func (r *reference) all(dir string) []string {
	out := []string{dir}
	for i := 0; i < len(out) && i < 1000; i++ {
		for _, set := range r.Aliases {
			for _, at := range set {
				if out[i] != at && !strings.HasPrefix(out[i], at+"/") {
					continue
				}
				for _, other := range set {
					if to := other + out[i][len(at):]; !slices.Contains(out, to) {
						out = append(out, to)
					}
				}
			}
		}
	}
	return out
}

// refuses is Check.
func (r *reference) refuses(dir, entry string, op Op) bool {
	if op == OpRemove && !r.TrapRemove {
		return false
	}
	dirs := r.all(dir)
	for _, d := range dirs {
		for _, free := range r.Free {
			if d == free || strings.HasPrefix(d, free+"/") {
				return false
			}
		}
	}
	mounted := r.mounted()
	for _, d := range dirs {
		parts := append(split(d), entry)
		for _, p := range append(mounted, r.patterns()...) {
			if p.refuses(parts, r.Packages, op) {
				return true
			}
		}
		pins := slices.Clone(r.Free)
		for _, set := range r.Aliases {
			pins = append(pins, set...)
		}
		for _, pin := range pins {
			for _, at := range r.all(pin) {
				on := slow{Pattern: literal(at + "/x")}
				if len(parts) <= len(split(at)) && on.refuses(parts, nil, op) {
					return true
				}
			}
		}
	}
	return false
}

func split(dir string) []string {
	return strings.FieldsFunc(dir, func(r rune) bool { return r == '/' })
}

// mounted are the paths that are forbidden because what is there is forbidden elsewhere.
func (r *reference) mounted() (out []slow) {
	for _, set := range r.Aliases {
		for _, at := range set {
			for _, at := range r.all(at) {
				for _, other := range r.all(at) {
					for _, p := range r.patterns() {
						if other != at && p.forbids(split(other), r.Packages) {
							out = append(out, slow{Pattern: literal(at)})
						}
					}
				}
			}
		}
	}
	return out
}

func (p *slow) forbids(parts, packages []string) bool {
	return p.refuses(parts, packages, OpMakeDir)
}

func (p *slow) refuses(parts, packages []string, op Op) bool {
	pattern := p.parts()
	begins := len(parts)
	if p.Rooted {
		begins = 1
	}
	for from := range begins {
		for to := from + 1; to <= len(parts); to++ {
			packaged := p.outside && slices.ContainsFunc(parts[:to-1], func(part string) bool { return slices.Contains(packages, part) })
			if !packaged && matches(pattern, parts[from:to]) {
				return true
			}
		}
		packaged := p.outside && slices.ContainsFunc(parts[:len(parts)-1], func(part string) bool { return slices.Contains(packages, part) })
		if packaged || op == OpMakeDir || op == OpRemove {
			continue
		}
		for n := 1; n < len(pattern); n++ {
			if !matches(pattern[:n], parts[from:]) {
				continue
			}
			if !pattern[n-1].wild || !op.plain() {
				return true
			}
		}
	}
	return false
}

func matches(pattern []part, path []string) bool {
	switch {
	case len(pattern) == 0:
		return len(path) == 0
	case pattern[0].wild && pattern[0].text == AnyDepth:
		return matches(pattern[1:], path) || len(path) > 0 && matches(pattern, path[1:])
	case len(path) == 0:
		return false
	}
	return pattern[0].matches(path[0]) && matches(pattern[1:], path[1:])
}

func (p part) matches(name string) bool {
	if !p.wild {
		return fold(p.text) == fold(name)
	}
	return slowGlob(p.text, fold(name), fold) || slowGlob(p.text, lowerASCII(name), lowerASCII)
}

func slowGlob(pattern, name string, form func(string) string) bool {
	switch {
	case pattern == "":
		return name == ""
	case pattern[0] == '*':
		if slowGlob(pattern[1:], name, form) {
			return true
		}
		_, size := utf8.DecodeRuneInString(name)
		return name != "" && slowGlob(pattern, name[size:], form)
	case pattern[0] == '?':
		_, size := utf8.DecodeRuneInString(name)
		return name != "" && slowGlob(pattern[1:], name[size:], form)
	}
	end := strings.IndexAny(pattern, "*?")
	if end < 0 {
		return form(pattern) == name
	}
	rest, ok := strings.CutPrefix(name, form(pattern[:end]))
	return ok && slowGlob(pattern[end:], rest, form)
}
