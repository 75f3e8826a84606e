package session

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"postern/caddy-modules/session/lease"
)

// Queue lengths, in events. A reader that falls behind by more loses the newest
// and is told how many.
const (
	emitQueue   = 1024
	streamQueue = 256
	leaseQueue  = 256
)

// hub hands events to whoever subscribed. Publishing never waits: it happens on
// the path of a connection.
type hub struct {
	mu      sync.Mutex
	all     map[*subscriber]struct{}
	one     map[string]map[*subscriber]struct{} // by session id
	closed  bool
	dropped atomic.Uint64 // ever, over all subscribers
}

// subscriber is one reader of events.
type subscriber struct {
	hub     *hub
	session string // empty: all sessions
	ch      chan lease.Event
	lost    atomic.Uint64 // since the reader was last told
}

func newHub() *hub {
	return &hub{all: map[*subscriber]struct{}{}, one: map[string]map[*subscriber]struct{}{}}
}

// subscribe registers a reader of all events, or of one session's.
func (h *hub) subscribe(session string, queue int) *subscriber {
	s := &subscriber{hub: h, session: session, ch: make(chan lease.Event, queue)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(s.ch)
		return s
	}
	if session == "" {
		h.all[s] = struct{}{}
		return s
	}
	if h.one[session] == nil {
		h.one[session] = map[*subscriber]struct{}{}
	}
	h.one[session][s] = struct{}{}
	return s
}

// cancel ends the subscription. What is queued can still be read; the channel is
// closed behind it. It may be called again.
func (s *subscriber) cancel() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	set := h.all
	if s.session != "" {
		set = h.one[s.session]
	}
	if _, there := set[s]; !there {
		return
	}
	delete(set, s)
	if s.session != "" && len(set) == 0 {
		delete(h.one, s.session)
	}
	close(s.ch)
}

// close cancels every subscription; later ones are cancelled from the start.
func (h *hub) close() {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.all))
	for _, set := range h.one {
		all = slices.AppendSeq(all, maps.Keys(set))
	}
	h.closed = true
	h.mu.Unlock()
	for _, s := range all {
		s.cancel()
	}
}

func (h *hub) publish(e lease.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.all {
		s.offer(e)
	}
	if e.Session != "" {
		for s := range h.one[e.Session] {
			s.offer(e)
		}
	}
}

func (s *subscriber) offer(e lease.Event) {
	select {
	case s.ch <- e:
	default:
		s.lost.Add(1)
		s.hub.dropped.Add(1)
	}
}

// gap returns the event that tells a reader what it lost since the last call.
func (s *subscriber) gap() (lease.Event, bool) {
	n := s.lost.Swap(0)
	if n == 0 {
		return lease.Event{}, false
	}
	return lease.Event{Time: time.Now(), Type: lease.EventDropped, Session: s.session, Fields: map[string]any{"count": n}}, true
}

// each calls f with every event until the subscription is cancelled, f fails, or
// stop is closed; what was published until then it gets in any case. Gaps are reported where
// they are noticed.
func (s *subscriber) each(stop <-chan struct{}, f func(lease.Event) error) error {
	for {
		select {
		case e, open := <-s.ch:
			if !open {
				return nil
			}
			if gap, lost := s.gap(); lost {
				if err := f(gap); err != nil {
					return err
				}
			}
			if err := f(e); err != nil {
				return err
			}
		case <-stop:
			// The end of the process closes both, and its last events are queued.
			s.cancel()
			stop = nil
		}
	}
}
