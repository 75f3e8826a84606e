package gitgw

import (
	"slices"
	"sync"
	"time"
)

// Inspections count what looks into packs take of the machine: room in the spool,
// looks at a time, and work. Each has a bound for all runs and one for each, so that
// no run takes what others need. Several gateways, and those of one configuration
// after another, should share one: the disk and the processors are the same. The zero
// value is ready to use.
type Inspections struct {
	mu      sync.Mutex
	kept    int64 // bytes in the spool
	taken   int   // seats
	waiting []*seat
	runs    map[string]*inspected
	pruned  time.Time
}

// inspected is one run's part.
type inspected struct {
	kept  int64
	taken int
	work  float64   // done, less what time has taken off
	held  int64     // work that looks under way may still do
	at    time.Time // of work
	rate  float64   // by which work goes down, in bytes a second
}

// of finds a run's part, and now and then forgets those that are of no account any
// more. mu is held.
func (n *Inspections) of(run string, now time.Time) *inspected {
	if now.Sub(n.pruned) > time.Minute {
		n.pruned = now
		for id, one := range n.runs {
			if one.cool(now); one.kept == 0 && one.taken == 0 && one.held == 0 && one.work == 0 {
				delete(n.runs, id)
			}
		}
	}
	one := n.runs[run]
	if one == nil {
		if n.runs == nil {
			n.runs = map[string]*inspected{}
		}
		one = &inspected{}
		n.runs[run] = one
	}
	return one
}

// grow takes room in the spool, or says which of the two bounds it would exceed.
func (n *Inspections) grow(run string, bytes, all, each int64) Code {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.of(run, time.Now())
	switch {
	case one.kept+bytes > each:
		return CodeSpoolRun
	case n.kept+bytes > all:
		return CodeSpoolAll
	}
	one.kept += bytes
	n.kept += bytes
	return ""
}

// shrink gives room back.
func (n *Inspections) shrink(run string, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of(run, time.Now()).kept -= bytes
	n.kept -= bytes
}

// seat is the right to look into one pack, or a place in the queue for it.
type seat struct {
	n         *Inspections
	run       string
	all, each int
	ready     chan struct{} // closed when the seat is had
	had, left bool
}

// queue asks for a seat. leave must be called, whether it was had or not.
func (n *Inspections) queue(run string, all, each int) *seat {
	s := &seat{n: n, run: run, all: all, each: each, ready: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, s)
	n.seat()
	return s
}

// seat gives free seats to those who wait, in their order but for runs that have
// theirs: nobody waits behind another run's crowd. mu is held.
func (n *Inspections) seat() {
	n.waiting = slices.DeleteFunc(n.waiting, func(s *seat) bool {
		one := n.of(s.run, time.Now())
		if n.taken >= s.all || one.taken >= s.each {
			return false
		}
		n.taken++
		one.taken++
		s.had = true
		close(s.ready)
		return true
	})
}

// leave gives the seat back, or the place in the queue. It may be called again.
func (s *seat) leave() {
	n := s.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.left {
		return
	}
	s.left = true
	if !s.had {
		n.waiting = slices.DeleteFunc(n.waiting, func(other *seat) bool { return other == s })
		return
	}
	n.taken--
	n.of(s.run, time.Now()).taken--
	n.seat()
}

// cool takes off what time has.
func (o *inspected) cool(now time.Time) {
	if past := now.Sub(o.at); past > 0 {
		o.work = max(0, o.work-o.rate*past.Seconds())
		o.at = now
	}
}

// spent reports how long a run has to wait until want bytes of work fit its budget,
// which it may use up within each window; 0 for now. Work that others of its looks
// hold counts where a look is about to begin.
func (n *Inspections) spent(run string, want, budget int64, window time.Duration, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.over(n.of(run, now), want, budget, window, now)
}

func (n *Inspections) over(one *inspected, want, budget int64, window time.Duration, now time.Time) time.Duration {
	one.cool(now)
	one.rate = float64(budget) / window.Seconds()
	if excess := one.work + float64(want) - float64(budget); excess > 0 {
		return max(time.Second, time.Duration(excess/one.rate*float64(time.Second)).Round(time.Second))
	}
	return 0
}

// hold takes want bytes of a run's budget for one look, until done says how many of
// them it used.
func (n *Inspections) hold(run string, want, budget int64, window time.Duration) (done func(used int64), again time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.of(run, time.Now())
	if again := n.over(one, one.held+want, budget, window, time.Now()); again > 0 {
		return nil, again
	}
	one.held += want
	return func(used int64) {
		n.mu.Lock()
		defer n.mu.Unlock()
		one := n.of(run, time.Now())
		one.cool(time.Now())
		one.held -= want
		one.work += float64(used)
	}, 0
}
