package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// watch is the one timer of a connection. Every stage has a limit and something
// to do when it passes; moving a byte costs one atomic store. The timer itself is
// touched only when it fires, or when a stage ends sooner than the one before.
//
// Deadlines on the sockets would do the same at the price of two timers a
// socket, set again at every stage.
type watch struct {
	// of is whose bytes move, nil for nobody's; free says that no cap counts them at
	// the moment.
	of   *flow
	free atomic.Bool
	// start is the zero of all times here, which are nanoseconds after it.
	start time.Time
	// last is when a byte moved.
	last atomic.Int64

	// acting is held while a stage's end is acted upon, and before mu. The next
	// stage begins behind that: what it says to the client must not meet a
	// deadline that the last one is about to set.
	acting sync.Mutex

	mu    sync.Mutex
	timer *time.Timer
	armed int64 // when timer fires
	due   int64 // when the stage ends at the latest
	idle  int64 // how long after last the stage ends, 0 for no matter
	// expire runs when the stage is over; flow instead of it when the stage
	// is one of flowing, with what it died of.
	expire func()
	flow   func(Cause)
	done   bool
	// settled runs when the timer fires for the first time and the connection
	// is still there: once, in the goroutine of the timer.
	settled func()
}

// never is far enough to mean "no limit" and safe to add to.
const never = int64(off)

// begin starts the watch with its first stage.
func (w *watch) begin(limit time.Duration, expire func()) {
	w.start = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due, w.armed, w.expire = int64(limit), int64(limit), expire
	w.timer = time.AfterFunc(limit, w.fire)
}

// stage starts a stage of a fixed length. expire runs once if it is still the
// stage when limit has passed, in a goroutine of its own.
func (w *watch) stage(limit time.Duration, expire func()) {
	w.set(limit, 0, expire, nil)
}

// flowing starts a stage that ends when no byte has moved for idle, and after
// total in any case. expire is told which: CauseIdle or CauseTotal. No expire may
// start a stage itself.
func (w *watch) flowing(idle, total time.Duration, expire func(Cause)) {
	w.set(total, idle, nil, expire)
}

func (w *watch) set(limit, idle time.Duration, expire func(), flow func(Cause)) {
	w.acting.Lock()
	defer w.acting.Unlock()
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last.Store(now)
	w.due, w.idle, w.expire, w.flow = now+int64(limit), int64(idle), expire, flow
	if at := w.endsAt(); !w.done && at < w.armed {
		w.armed = at
		w.timer.Reset(time.Duration(at - now))
	}
}

// touch says that a byte moved.
func (w *watch) touch() { w.last.Store(w.now()) }

func (w *watch) now() int64 { return int64(time.Since(w.start)) }

// endsAt is when the stage ends as things stand. mu is held.
func (w *watch) endsAt() int64 {
	if w.idle > 0 {
		return min(w.due, w.last.Load()+w.idle)
	}
	return w.due
}

func (w *watch) fire() {
	w.acting.Lock()
	defer w.acting.Unlock()
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		return
	}
	now := w.now()
	settled := w.settled
	w.settled = nil
	if at := w.endsAt(); at > now {
		w.armed = at
		w.timer.Reset(time.Duration(at - now))
		w.mu.Unlock()
		if settled != nil {
			settled()
		}
		return
	}
	// Another stage may follow, an answer that says what happened: the next
	// set arms the timer again.
	expire, flow, cause := w.expire, w.flow, CauseIdle
	if w.due <= now {
		cause = CauseTotal
	}
	w.expire, w.flow = nil, nil
	w.due, w.idle, w.armed = never, 0, never
	w.mu.Unlock()
	switch {
	case flow != nil:
		flow(cause)
	case expire != nil:
		expire()
	}
}

// stop ends the watch. An expire that has begun may still be running.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.timer.Stop()
}
