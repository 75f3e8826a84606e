package seatbelt

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"postern/launcher/nameguard"
)

// Patterns of names are nameguard's, and become expressions here. They hold for every
// spelling that a volume of macOS takes for the same name: any case of any letter, and
// both normal forms of each character. Compatible forms and characters that nobody sees,
// which nameguard folds too, are names of their own on such a volume.
//
// What is on the way to a forbidden name is pinned as nameguard says, so far as the
// kernel asks: a directory that is renamed onto a free name cannot be told from one that
// is made.

// expressions are those of one pattern, without a slash behind.
type expressions struct {
	whole        []string // of the name itself
	strict, wide []string // of what is on the way, spelled out or through a wildcard
}

func (p *Policy) expressions(text string) (expressions, error) {
	pattern, err := nameguard.Parse(text)
	if err != nil {
		return expressions{}, err
	}
	var (
		out    expressions
		parts  = pattern.Parts
		starts = []string{""}
	)
	if pattern.Rooted {
		var fixed int
		for fixed < len(parts)-1 && !strings.ContainsAny(parts[fixed], "*?") {
			fixed++
		}
		starts = p.starts(parts[:fixed], &out)
		parts = parts[fixed:]
	}
	for _, start := range starts {
		for i, part := range parts {
			if part == nameguard.AnyDepth {
				start += "(/.*)?"
			} else {
				start += "/" + nameExpr(part)
			}
			switch {
			case i == len(parts)-1:
				out.whole = append(out.whole, start)
			case strings.ContainsAny(part, "*?"):
				out.wide = append(out.wide, start)
			default:
				out.strict = append(out.strict, start)
			}
		}
	}
	return out, nil
}

// starts are the expressions of a folder, in every spelling of its path. Itself and its
// ancestors are on the way.
func (p *Policy) starts(fixed []string, out *expressions) []string {
	var starts []string
	for _, path := range p.spellings("/" + strings.Join(fixed, "/")) {
		var at strings.Builder
		at.WriteByte('^')
		for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' }) {
			at.WriteString("/" + nameExpr(part))
			out.strict = append(out.strict, at.String())
		}
		starts = append(starts, at.String())
		if len(fixed) == 0 {
			starts = append(starts, "^"+strings.ReplaceAll(dataVolume, ".", `\.`))
		}
	}
	return starts
}

// nameExpr is the expression of one part of a pattern. What is not ASCII stands in
// alternatives and never in a class: whether the kernel reads characters or bytes, it is
// the same.
func nameExpr(part string) string {
	var b strings.Builder
	var segments norm.Iter
	for segments.InitString(norm.NFC, part); !segments.Done(); {
		segment := string(segments.Next())
		composed, apart := caseless(segment), caseless(norm.NFD.String(segment))
		switch {
		case segment == "*":
			b.WriteString("[^/]*")
		case segment == "?":
			b.WriteString("[^/]")
		case composed == apart:
			b.WriteString(composed)
		default:
			b.WriteString("(" + composed + "|" + apart + ")")
		}
	}
	return b.String()
}

// caseless is the expression of characters in any case.
func caseless(text string) string {
	var b strings.Builder
	for _, r := range text {
		var ascii, other []string
		for c := r; ; {
			if c < unicode.MaxASCII {
				ascii = append(ascii, string(c))
			} else {
				other = append(other, string(c))
			}
			if c = unicode.SimpleFold(c); c == r {
				break
			}
		}
		// Small letters come first, whichever was given.
		slices.SortFunc(ascii, func(a, b string) int { return cmp.Compare(b, a) })
		slices.Sort(other)
		switch {
		case len(ascii) > 1:
			other = append([]string{"[" + strings.Join(ascii, "") + "]"}, other...)
		case len(ascii) == 1:
			other = append([]string{escape(ascii[0])}, other...)
		}
		if len(other) == 1 {
			b.WriteString(other[0])
		} else {
			b.WriteString("(" + strings.Join(other, "|") + ")")
		}
	}
	return b.String()
}

func escape(char string) string {
	if strings.ContainsAny(char, `.+^$(){}|[]\*?`) {
		return `\` + char
	}
	return char
}

func regex(expr string) string { return `(regex #"` + expr + `")` }

// none writes that no filter of a list matches; of an empty one that is always so.
func none(filters ...string) string {
	switch len(filters) {
	case 0:
		return ""
	case 1:
		return " (require-not " + filters[0] + ")"
	}
	return " (require-not (require-any " + strings.Join(filters, " ") + "))"
}

const (
	folder = "(vnode-type DIRECTORY)"
	file   = "(vnode-type REGULAR-FILE)"
)

// names writes the rules about names: of patterns that hold everywhere, and of those that
// do not hold below the folders of free. What a name forbids, it forbids in such a folder
// below it too.
func (w *writer) names(patterns, free []string) {
	var below, whole, strict, stays, wide, moves []string
	for _, name := range free {
		below = append(below, regex("/"+literally(name)+"/"))
	}
	below = append(below, w.filters(w.policy.Free, subpath)...)
	slices.Sort(below)
	outside := func(filter, more string) string {
		if more == "" && len(below) == 0 {
			return filter
		}
		return "(require-all " + filter + more + none(below...) + ")"
	}
	for _, text := range patterns {
		e, err := w.policy.expressions(text)
		if err != nil {
			continue // Validate has refused it
		}
		for _, expr := range e.whole {
			whole = append(whole, outside(regex(expr+"(/|$)"), ""))
			for _, name := range free {
				again := regex(expr + "(/.*)?/" + literally(name) + "/")
				if in := w.free(); in != "" {
					again = "(require-all " + again + in + ")"
				}
				whole = append(whole, again)
			}
		}
		for _, expr := range e.strict {
			strict = append(strict, outside(regex(expr+"$"), none(folder)))
			stays = append(stays, outside(regex(expr+"$"), ""))
		}
		for _, expr := range e.wide {
			wide = append(wide, outside(regex(expr+"$"), none(file, folder)))
			moves = append(moves, outside(regex(expr+"$"), none(file)))
		}
	}
	for _, rule := range []struct {
		ops     string
		filters []string
	}{
		{"file-write* file-link", whole}, // the names
		{"file-write*", strict},          // on the way there are directories,
		{"file-write-create", wide},      // or what leads nowhere,
		{"file-write-unlink", stays},     // and nothing is moved away
		{"file-write-unlink", moves},
	} {
		slices.Sort(rule.filters)
		if filters := slices.Compact(rule.filters); len(filters) > 0 {
			w.deny(rule.ops, filters...)
		}
	}
}

// free writes that a path lies in no free directory.
func (w *writer) free() string { return none(w.filters(w.policy.Free, subpath)...) }

// literally is the expression of a name to the letter.
func literally(name string) string {
	var b strings.Builder
	for _, r := range name {
		b.WriteString(escape(string(r)))
	}
	return b.String()
}
