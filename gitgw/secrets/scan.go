package secrets

import (
	"bytes"
	"errors"
	"io"
)

// Finding is one credential: its kind and its place, never itself.
type Finding struct {
	// Rule is the kind's name, as in github-pat.
	Rule string
	// At is how many bytes precede the match.
	At int64

	set  *Set
	rule *rule
}

// In reports whether the finding counts in a file of this name. Some are examples, or
// sums in a lock file.
func (f Finding) In(path string) bool {
	if f.set.allowed.coversPath(path) {
		return false
	}
	for _, a := range f.rule.allowed {
		if a.coversPath(path) {
			return false
		}
	}
	return true
}

const (
	step    = 128 << 10 // bytes read at a time
	longRun = 48 << 10  // a window that is longer is looked at in parts
)

// window is a part of the stream that a rule's expression is to look at.
type window struct{ from, to int64 }

// Scanner scans streams, one after the other, with one buffer.
type Scanner struct {
	set     *Set
	buf     []byte
	base    int64 // where buf begins in the stream
	state   uint16
	windows map[uint16]window
	report  func(Finding)
	most    int
	told    map[uint16]bool // rules of which a finding was reported
}

// maxFindings is how many findings of one stream are reported, beside the first of
// each rule: what counts in a file is a rule's own matter, so that a hundred findings
// that do not count must not hide one that does.
const maxFindings = 100

// NewScanner makes a scanner.
func (s *Set) NewScanner() *Scanner {
	return &Scanner{set: s, buf: make([]byte, 0, step+longRun+2*reach), windows: map[uint16]window{}, told: map[uint16]bool{}}
}

// Scan reads r to its end and reports what it finds.
func (s *Scanner) Scan(r io.Reader, report func(Finding)) error {
	s.buf, s.base, s.state, s.report, s.most = s.buf[:0], 0, 0, report, maxFindings
	clear(s.windows)
	clear(s.told)
	for {
		old := len(s.buf)
		n, err := io.ReadFull(r, s.buf[old:min(old+step, cap(s.buf))])
		s.buf = s.buf[:old+n]
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return err
		}
		s.search(old)
		s.settle(last)
		if last {
			return nil
		}
	}
}

// search runs the automaton over what is new in the buffer.
func (s *Scanner) search(from int) {
	a := s.set.words
	state, classes := s.state, a.classes
	for i := from; i < len(s.buf); i++ {
		state = a.next[int(state)*classes+int(a.class[s.buf[i]])]
		if a.any[state] {
			for _, h := range a.found[state] {
				s.hit(h, i+1-h.size)
			}
		}
	}
	s.state = state
}

// hit notes that a rule's expression has to look here.
func (s *Scanner) hit(h hit, at int) {
	r := s.set.rules[h.rule]
	// Words of a few letters are everywhere. What follows must look like a token.
	if at >= 0 && !r.plausible(s.buf, at, h.size) {
		return
	}
	pos := s.base + int64(at)
	w, open := s.windows[h.rule]
	if open && pos-r.before > w.to {
		s.look(h.rule, w, false)
		open = false
	}
	if !open {
		w = window{from: max(0, pos-r.before)}
	}
	w.to = pos + int64(h.size) + r.after
	s.windows[h.rule] = w
}

// plausible is a quick look at a word's neighbours. What is not in the buffer yet is
// plausible.
func (r *rule) plausible(buf []byte, at, size int) bool {
	if r.atWord && at > 0 && wordByte(buf[at]) && wordByte(buf[at-1]) {
		return false
	}
	if r.exact != nil {
		ok := false
		for _, e := range r.exact {
			ok = ok || bytes.HasPrefix(buf[at:], []byte(e)) || len(buf)-at < len(e)
		}
		if !ok {
			return false
		}
		if size <= 4 {
			for _, c := range buf[at+size : min(at+size+8, len(buf))] {
				if !tokenByte[c] {
					return false
				}
			}
		}
	}
	return true
}

// settle looks at the windows that the buffer holds whole, and makes room.
func (s *Scanner) settle(last bool) {
	end := s.base + int64(len(s.buf))
	keep := end - 512 // a word's beginning, and what stands before it
	for id, w := range s.windows {
		switch {
		case last || w.to <= end:
			s.look(id, w, last)
			delete(s.windows, id)
			continue
		case end-w.from > longRun:
			s.look(id, w, false)
			w.from = end - reach
			s.windows[id] = w
		}
		keep = min(keep, w.from)
	}
	if cut := keep - s.base; cut > 0 {
		n := copy(s.buf, s.buf[cut:])
		s.buf, s.base = s.buf[:n], keep
	}
}

// look runs a rule's expression over a window. A match that ends where the window was
// cut may be longer than it looks, and is left to the next window.
func (s *Scanner) look(id uint16, w window, last bool) {
	r := s.set.rules[id]
	end := s.base + int64(len(s.buf))
	from, to := max(w.from-s.base, 0), min(w.to, end)-s.base
	text := s.buf[from:to]
	whole := last && to == int64(len(s.buf))
	for off := 0; off < len(text) && (s.most > 0 || !s.told[id]); {
		m := r.re().FindSubmatchIndex(text[off:])
		if m == nil {
			return
		}
		if m[1] == len(text)-off && !whole && m[1]-m[0] < reach/2 {
			return
		}
		if s.counts(r, text, off, m) {
			s.most--
			s.told[id] = true
			s.report(Finding{Rule: r.id, At: s.base + from + int64(off+m[0]), set: s.set, rule: r})
		}
		off += max(m[1], m[0]+1)
	}
}

// counts judges a match as the rule set has it: enough entropy, and no example.
func (s *Scanner) counts(r *rule, text []byte, off int, m []int) bool {
	group := func(n int) string {
		if 2*n+1 >= len(m) || m[2*n] < 0 {
			return ""
		}
		return string(text[off+m[2*n] : off+m[2*n+1]])
	}
	match := group(0)
	secret := group(r.group)
	for n := 1; r.group == 0 && n < len(m)/2; n++ {
		if g := group(n); g != "" {
			secret = g
			break
		}
	}
	if r.entropy > 0 && entropy(secret) <= r.entropy {
		return false
	}
	from := bytes.LastIndexByte(text[:off+m[0]], '\n') + 1
	to := off + m[1]
	if n := bytes.IndexByte(text[to:], '\n'); n >= 0 {
		to += n
	} else {
		to = len(text)
	}
	line := string(text[from:to])
	if s.set.allowed.covers(secret, match, line) {
		return false
	}
	for _, a := range r.allowed {
		if a.covers(secret, match, line) {
			return false
		}
	}
	return true
}
