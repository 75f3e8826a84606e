package violation

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"postern/launcher/spec"
)

// Violation is one denied system call. Its target is empty where the text names none.
type Violation = spec.Violation

// Report is a violation, and how often it was seen since the last report of it.
type Report struct {
	Violation
	Count uint64
}

const (
	// window is how long the same action and target, refused by the same rule, are
	// counted before they are told again.
	window = 5 * time.Second

	// maxKeys bounds how many different ones are remembered at a time.
	maxKeys = 512

	// burst is how many are told at once, and perSecond how many from then on: a run
	// can deny itself things faster than anybody reads.
	burst     = 256
	perSecond = 32
)

// Sink takes violations of one run and reports them. It may be used from several
// goroutines; report is called by one at a time and must not block, nor call the Sink.
type Sink struct {
	report func(Report)
	now    func() time.Time

	mu      sync.Mutex
	closed  bool
	open    map[key]*counted
	covered map[string]time.Time // last names of what somebody else tells of
	tokens  float64
	filled  time.Time
	dropped uint64
}

type key struct{ action, target, rule string }

type counted struct {
	first Violation
	since time.Time
	more  uint64 // seen since the last report
}

// NewSink makes a Sink that tells report.
func NewSink(report func(Report)) *Sink {
	return &Sink{report: report, now: time.Now, open: map[key]*counted{}, covered: map[string]time.Time{}, tokens: burst}
}

// Add takes one violation: it is told at once, or counted.
func (s *Sink) Add(v Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	now := s.now()
	if s.isCovered(&v, now) {
		return
	}
	k := key{v.Action, v.Target, v.Rule}
	if known := s.open[k]; known != nil {
		known.more++
		if now.Sub(known.since) >= window && s.pay(now) {
			s.report(Report{v, known.more})
			known.since, known.more = now, 0
		}
		return
	}
	if len(s.open) >= maxKeys {
		s.sweep(now)
	}
	if len(s.open) >= maxKeys || !s.pay(now) {
		s.dropped++
		return
	}
	s.open[k] = &counted{first: v, since: now}
	s.report(Report{v, 1})
}

// pay takes the price of one report out of the bucket, if it is there.
func (s *Sink) pay(now time.Time) bool {
	if !s.filled.IsZero() {
		s.tokens = min(burst, s.tokens+now.Sub(s.filled).Seconds()*perSecond)
	}
	s.filled = now
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}

// sweep forgets what was quiet for a window, and tells what is still counted of the
// rest of those whose window is over.
func (s *Sink) sweep(now time.Time) {
	for k, c := range s.open {
		if now.Sub(c.since) < window {
			continue
		}
		if c.more > 0 {
			s.report(Report{c.first, c.more})
		}
		delete(s.open, k)
	}
}

// Close tells what is still counted and takes no more. It may be called again.
func (s *Sink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	var rest []Report
	for _, c := range s.open {
		if c.more > 0 {
			rest = append(rest, Report{c.first, c.more})
		}
	}
	slices.SortFunc(rest, func(a, b Report) int {
		return cmp.Or(strings.Compare(a.Action, b.Action), strings.Compare(a.Target, b.Target), strings.Compare(a.Rule, b.Rule))
	})
	for _, r := range rest {
		s.report(r)
	}
	s.open = nil
}

// Dropped is how many were neither told nor counted, because there were too many.
func (s *Sink) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}
