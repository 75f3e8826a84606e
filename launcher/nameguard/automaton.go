package nameguard

import (
	"encoding/binary"
	"strings"
)

// node is a state of the automaton: how far a path has come in some patterns. Nodes are
// shared by patterns that begin alike.
type node struct {
	literal map[string]*node // by the folded name
	globs   []edge

	loop bool  // it stays a state whatever comes: two stars
	also *node // a state that is one wherever this is: no folder of the two stars

	// always and outside are the first rules that end here; the second does not hold
	// in packages.
	always, outside *Rule

	// pins and pinsOutside are the first rules that go on from here; strict says that
	// the way here is spelled out, so that nothing else may have this very name.
	pins, pinsOutside *Rule
	strict            bool
}

type edge struct {
	part string // folded
	glob glob
	to   *node
}

// lay leads the parts of a pattern on from n, and returns where they end. Pins are noted
// on the way for rule, which holds outside packages only if outside.
func (n *node) lay(p Pattern, rule *Rule, outside bool) *node {
	for i, part := range p.Parts {
		n = n.next(part, i >= p.names && strings.ContainsAny(part, "*?"))
		if i < len(p.Parts)-1 {
			n.pin(rule, outside)
		}
	}
	return n
}

func (n *node) next(part string, wild bool) *node {
	switch {
	case wild && part == AnyDepth:
		if n.also == nil {
			n.also = &node{loop: true}
		}
		return n.also
	case wild:
		text := string(foldWild(part))
		for i := range n.globs {
			if n.globs[i].part == text {
				return n.globs[i].to
			}
		}
		to := new(node)
		n.globs = append(n.globs, edge{part: text, glob: newGlob(part), to: to})
		return to
	default:
		text := fold(part)
		to := n.literal[text]
		if to == nil {
			to = &node{strict: true}
			if n.literal == nil {
				n.literal = map[string]*node{}
			}
			n.literal[text] = to
		}
		return to
	}
}

// foldWild tells parts apart: the wildcards and what is between them, in both forms.
func foldWild(part string) []byte {
	var out []byte
	for _, form := range []func(string) string{lowerASCII, fold} {
		for _, c := range globOf(part, form) {
			out = binary.BigEndian.AppendUint16(out, c)
		}
		out = append(out, 0xff, 0xff)
	}
	return out
}

func (n *node) pin(rule *Rule, outside bool) {
	at := &n.pins
	if outside {
		at = &n.pinsOutside
	}
	if *at == nil {
		*at = rule
	}
}

func (n *node) end(rule *Rule, outside bool) {
	at := &n.always
	if outside {
		at = &n.outside
	}
	if *at == nil {
		*at = rule
	}
}

// states is a set of nodes. Few paths are in more than a handful.
type states []*node

func (s states) add(n *node) states {
	for ; n != nil; n = n.also {
		known := false
		for _, have := range s {
			known = known || have == n
		}
		if known {
			break
		}
		s = append(s, n)
	}
	return s
}

// maxBuffer is enough for every name of the file systems that are allowed; a longer one
// is folded on the heap.
const maxBuffer = maxName + 1

// forms are the two in which a name is compared, the first in buf. For ASCII they are
// the same.
func forms(name []byte, ascii bool, buf []byte) (plain, folded []byte) {
	for _, c := range name {
		buf = append(buf, lowerByte(c))
	}
	if ascii {
		return buf, buf
	}
	return buf, []byte(fold(string(name)))
}

// step appends to next the states to which a name leads from s. Everything it makes
// it makes in next and buf: nothing is stored, so that nothing must live on the heap.
func (s states) step(name []byte, ascii bool, first *filter, buf []byte, next states) states {
	var (
		plain, folded []byte
		ready         bool
	)
	for _, from := range s {
		if from.loop {
			next = next.add(from)
		}
		if from == first.of && !first.may(name, ascii) || from.literal == nil && from.globs == nil {
			continue
		}
		if !ready {
			plain, folded = forms(name, ascii, buf)
			ready = true
		}
		if to := from.literal[string(folded)]; to != nil {
			next = next.add(to)
		}
		for i := range from.globs {
			if e := &from.globs[i]; e.glob.match(plain, folded, ascii) {
				next = next.add(e.to)
			}
		}
	}
	return next
}

// filter says by the first and the last byte of a name whether it can lead anywhere from
// one node: of the node in which every path is, and which nearly no name leads on from.
type filter struct {
	of          *node
	first, last [256]uint64
}

func (f *filter) may(name []byte, ascii bool) bool {
	return !ascii || len(name) == 0 || f.first[name[0]]&f.last[name[len(name)-1]] != 0
}

// filterOf makes the filter of n. What leads on from it is dealt out to 64 bits, so that
// the ends of two different names seldom make one.
func filterOf(n *node) *filter {
	f := &filter{of: n}
	bit := uint64(1)
	add := func(first, last uint16) {
		for c := range 256 {
			lower := uint16(lowerByte(byte(c)))
			if first > 0xff || first == lower {
				f.first[c] |= bit
			}
			if last > 0xff || last == lower {
				f.last[c] |= bit
			}
		}
		bit = bit<<1 | bit>>63
	}
	for text := range n.literal {
		if text == "" {
			continue // no name is: see checkPart
		}
		add(uint16(text[0]), uint16(text[len(text)-1]))
	}
	for i := range n.globs {
		g := n.globs[i].glob.folded
		add(g[0], g[len(g)-1])
	}
	return f
}
