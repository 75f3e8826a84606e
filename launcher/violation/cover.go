package violation

import (
	"strings"
	"time"
)

// Cover says that somebody who knows tells of a denial of what is at path: what the run
// itself says of it is not told beside that. It is called before the run can say anything.
func (s *Sink) Cover(path string) {
	name := path[strings.LastIndexByte(path, '/')+1:]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if _, known := s.covered[name]; !known && len(s.covered) >= maxKeys {
		for n, since := range s.covered {
			if now.Sub(since) >= window {
				delete(s.covered, n)
			}
		}
		if len(s.covered) >= maxKeys {
			return
		}
	}
	s.covered[name] = now
}

// isCovered reports whether a violation that the run tells of is told by somebody else.
func (s *Sink) isCovered(v *Violation, now time.Time) bool {
	if v.Rule != "" {
		return false
	}
	for name, since := range s.covered {
		if now.Sub(since) < window && (strings.HasSuffix(v.Target, name) || strings.Contains(v.Raw, name)) {
			return true
		}
	}
	return false
}
