package nameguard

import (
	"strings"
	"unicode/utf8"
)

// Values of a glob that are no byte of a name: a folded text may have any.
const (
	anyText uint16 = 0x100 + iota
	anyRune
)

// glob is a part with a star or a question mark, in the two forms that names have: as
// they are but for the case of ASCII, and folded. Folding can make one character of two,
// and two of one, so that a question mark may be right in either form alone.
type glob struct {
	plain, folded []uint16
}

func newGlob(part string) glob {
	return glob{plain: globOf(part, lowerASCII), folded: globOf(part, fold)}
}

// globOf folds what stands between the wildcards, so that a character that is compatible
// with a star becomes none.
func globOf(part string, form func(string) string) []uint16 {
	var out []uint16
	literal := func(text string) {
		text = form(text)
		for i := range len(text) {
			out = append(out, uint16(text[i]))
		}
	}
	for {
		at := strings.IndexAny(part, "*?")
		if at < 0 {
			literal(part)
			return out
		}
		literal(part[:at])
		if part[at] == '*' {
			out = append(out, anyText)
		} else {
			out = append(out, anyRune)
		}
		part = part[at+1:]
	}
}

// match matches a name in both of its forms.
func (g *glob) match(plain, folded []byte, ascii bool) bool {
	return matchName(g.folded, folded) || !ascii && matchName(g.plain, plain)
}

// matchName goes back to the last star alone, so that it takes no more than the product
// of the lengths.
func matchName(pattern []uint16, text []byte) bool {
	back, from := -1, 0
	i := 0
	for at := 0; at < len(text); {
		switch {
		case i < len(pattern) && pattern[i] == anyText:
			back, from = i, at
			i++
		case i < len(pattern) && pattern[i] == anyRune:
			_, size := utf8.DecodeRune(text[at:])
			i++
			at += size
		case i < len(pattern) && pattern[i] == uint16(text[at]):
			i++
			at++
		case back >= 0:
			_, size := utf8.DecodeRune(text[from:])
			from += size
			i, at = back+1, from
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == anyText {
		i++
	}
	return i == len(pattern)
}
