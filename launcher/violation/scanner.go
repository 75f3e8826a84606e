package violation

import (
	"bytes"
	"sync"
)

const (
	// maxLine is how much of one line is looked at, in bytes, around what was found.
	maxLine = 4 << 10

	// maxHits bounds the lines of one chunk that are read closely; more of them say
	// nothing new.
	maxHits = 1024
)

// Scanner searches one stream of a run's output. It only looks on: give it each chunk
// after the chunk was passed on. The zero value is not usable; see NewScanner.
type Scanner struct {
	sink *Sink

	mu   sync.Mutex
	line []byte // the end of a line that has none yet, at most maxLine
	seen bool   // something was found in it already
}

// NewScanner makes a Scanner that gives what it finds to sink.
func NewScanner(sink *Sink) *Scanner { return &Scanner{sink: sink} }

// Observe looks at the next chunk of the stream. It keeps nothing of b.
func (s *Scanner) Observe(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.line) > 0 {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			s.keep(b)
			return
		}
		s.keep(b[:end])
		s.finish()
		b = b[end+1:]
	}
	last := bytes.LastIndexByte(b, '\n')
	s.lines(b[:last+1], false)
	s.keep(b[last+1:])
}

// Close looks at the last line, if it had no end.
func (s *Scanner) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish()
}

// keep appends to the line that has no end yet. Of a very long one the end is kept, and
// what leaves is looked at first.
func (s *Scanner) keep(b []byte) {
	if len(s.line)+len(b) <= maxLine {
		s.line = append(s.line, b...)
		return
	}
	// What lies across the two, then the rest of the new part in its place.
	s.line = append(s.line, b[:min(len(b), maxLine/2)]...)
	s.look(s.line)
	if len(b) > maxLine/2 {
		s.look(b)
		s.line = append(s.line[:0], b[len(b)-maxLine/2:]...)
		return
	}
	s.line = append(s.line[:0], s.line[len(s.line)-maxLine/2:]...)
}

// finish ends the line that has none.
func (s *Scanner) finish() {
	s.look(s.line)
	s.line, s.seen = s.line[:0], false
}

// look searches a line, or the part of one that is at hand. One line tells once.
func (s *Scanner) look(line []byte) {
	if !s.seen {
		s.seen = s.lines(line, true)
	}
}

// lines searches whole lines, or with once a part of one until it has told. What has no
// hit, which is nearly all there ever is, costs two searches over the bytes and nothing
// else.
func (s *Scanner) lines(b []byte, once bool) bool {
	name, text := next(b, short, nil), next(b, common, endings)
	for range maxHits {
		at := text
		if at < 0 || name >= 0 && name < at {
			at = name
		}
		if at < 0 {
			return false
		}
		start := max(bytes.LastIndexByte(b[:at], '\n')+1, at-maxLine/2)
		end := at + bytes.IndexByte(b[at:], '\n') + 1
		if end == at { // no line end is in sight
			end = min(len(b), at+maxLine/2)
		}
		if s.read(b[start:min(end, at+maxLine/2)]) && once {
			return true
		}
		b = b[end:]
		// Only what lay behind is searched again.
		if name >= 0 {
			if name -= end; name < 0 {
				name = next(b, short, nil)
			}
		}
		if text >= 0 {
			if text -= end; text < 0 {
				text = next(b, common, endings)
			}
		}
	}
	return false
}

// read tells of the line, if it tells of a violation.
func (s *Scanner) read(line []byte) bool {
	v, ok := parse(line)
	if ok {
		s.sink.Add(v)
	}
	return ok
}

// What the texts have in common serves to find either with one search, whatever the
// case of their first letter.
var (
	short   = []byte("EPERM")
	common  = []byte("rmi")
	endings = [][]byte{[]byte("ssion"), []byte("tted")}
)

// next finds word in b, followed by one of then; -1 where it is not.
func next(b, word []byte, then [][]byte) int {
	for from := 0; ; {
		i := bytes.Index(b[from:], word)
		if i < 0 {
			return -1
		}
		at := from + i
		from = at + len(word)
		if then == nil {
			return at
		}
		for _, t := range then {
			if bytes.HasPrefix(b[from:], t) {
				return at
			}
		}
	}
}
