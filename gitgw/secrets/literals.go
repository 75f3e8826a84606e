package secrets

import (
	"fmt"
	"math"
	"regexp/syntax"
)

// beginnings are the texts of which every match of an expression begins with one,
// none where that cannot be said. fold means that letters may be of either case.
func beginnings(re *syntax.Regexp) (texts []string, fold bool) {
	texts, _, fold = begin(re)
	for _, t := range texts {
		if len(t) < 2 {
			return nil, false
		}
	}
	return texts, fold
}

// begin is beginnings of a part; whole means that the texts are all there is of it.
func begin(re *syntax.Regexp) (texts []string, whole, fold bool) {
	const most = 16
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpBeginText:
		return []string{""}, true, false
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, true, re.Flags&syntax.FoldCase != 0
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			for c := re.Rune[i]; c <= re.Rune[i+1]; c++ {
				if texts = append(texts, string(c)); len(texts) > 4 {
					return []string{""}, false, false
				}
			}
		}
		return texts, true, false
	case syntax.OpCapture:
		return begin(re.Sub[0])
	case syntax.OpAlternate:
		whole = true
		for _, sub := range re.Sub {
			t, w, f := begin(sub)
			texts, whole, fold = append(texts, t...), whole && w, fold || f
		}
		if len(texts) > most {
			return []string{""}, false, false
		}
		return texts, whole, fold
	case syntax.OpConcat:
		texts, whole = []string{""}, true
		for _, sub := range re.Sub {
			t, w, f := begin(sub)
			if len(texts)*len(t) > most {
				return texts, false, fold
			}
			var longer []string
			for _, a := range texts {
				for _, b := range t {
					longer = append(longer, a+b)
				}
			}
			texts, fold = longer, fold || f
			if !w {
				return texts, false, fold
			}
		}
		return texts, true, fold
	default:
		return []string{""}, false, false
	}
}

// atWord reports whether an expression begins at a word boundary.
func atWord(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpWordBoundary:
		return true
	case syntax.OpConcat, syntax.OpCapture:
		return atWord(re.Sub[0])
	default:
		return false
	}
}

// longest is the most bytes that a match has, reach and more for no limit.
func longest(re *syntax.Regexp) int64 {
	const none = math.MaxInt32
	switch re.Op {
	case syntax.OpLiteral:
		return int64(len(string(re.Rune)))
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 4
	case syntax.OpCapture, syntax.OpQuest:
		return longest(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		return none
	case syntax.OpRepeat:
		if re.Max < 0 {
			return none
		}
		return min(none, longest(re.Sub[0])*int64(re.Max))
	case syntax.OpConcat:
		var n int64
		for _, sub := range re.Sub {
			n = min(none, n+longest(sub))
		}
		return n
	case syntax.OpAlternate:
		var n int64
		for _, sub := range re.Sub {
			n = max(n, longest(sub))
		}
		return n
	default:
		return 0
	}
}

// automaton finds many words in one pass, Aho and Corasick's way, with a table that
// needs one look for each byte. Letters are folded.
type automaton struct {
	class   [256]uint8
	classes int
	next    []uint16 // by state and class
	found   [][]hit  // by state; state 0 is the beginning
	any     []bool   // found is not empty
}

// hit is a word that ends in a state.
type hit struct {
	rule uint16
	size int
}

func newAutomaton(words map[string][]uint16) (*automaton, error) {
	a := &automaton{classes: 1}
	for w := range words {
		for i := range len(w) {
			if c := w[i]; a.class[c] == 0 {
				a.class[c] = uint8(a.classes) //nolint:gosec // at most 256 bytes
				if a.classes++; a.classes > 255 {
					return nil, fmt.Errorf("words of %d letters", a.classes)
				}
			}
		}
	}
	for c := byte('a'); c <= 'z'; c++ {
		a.class[c-'a'+'A'] = a.class[c]
	}
	grow := func() uint16 {
		a.next = append(a.next, make([]uint16, a.classes)...)
		a.found = append(a.found, nil)
		return uint16(len(a.found) - 1) //nolint:gosec // checked at the end
	}
	grow()
	for w, rules := range words {
		s := uint16(0)
		for i := range len(w) {
			at := int(s)*a.classes + int(a.class[w[i]])
			if a.next[at] == 0 {
				n := grow()
				a.next[at] = n
			}
			s = a.next[at]
		}
		for _, r := range rules {
			a.found[s] = append(a.found[s], hit{r, len(w)})
		}
		if len(a.found) > math.MaxUint16 {
			return nil, fmt.Errorf("too many words")
		}
	}
	// Level by level: where a word breaks off, go on as its longest tail would.
	fail := make([]uint16, len(a.found))
	queue := []uint16{}
	for _, s := range a.next[:a.classes] {
		if s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		a.found[s] = append(a.found[s], a.found[fail[s]]...)
		for c := range a.classes {
			at, back := int(s)*a.classes+c, a.next[int(fail[s])*a.classes+c]
			if n := a.next[at]; n != 0 {
				fail[n] = back
				queue = append(queue, n)
			} else {
				a.next[at] = back
			}
		}
	}
	a.any = make([]bool, len(a.found))
	for s := range a.found {
		a.any[s] = len(a.found[s]) > 0
	}
	return a, nil
}

// tokenByte are the bytes that credentials are made of.
var tokenByte = func() (t [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+/=.~") {
		t[c] = true
	}
	return t
}()

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
