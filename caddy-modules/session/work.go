package session

import (
	"sync"
	"time"
)

// workFor bounds how long the end of a session waits for what is done in its
// name: a push that the forge has whole already, a token that is on its way.
const workFor = 5 * time.Second

// work counts what is done in a session's name by others than its proxies. Once
// somebody waits, nothing new begins. The zero value is ready to use.
type work struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // made by who waits, closed when nothing runs
	pause   chan struct{} // the same, of those after whom more may begin
}

// begin counts one more, until finished is called, which may be called again. ok
// is false when the end has come too far.
func (w *work) begin() (finished func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle != nil {
		return func() {}, false
	}
	w.running++
	return sync.OnceFunc(w.finish), true
}

func (w *work) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if w.running > 0 {
		return
	}
	if w.idle != nil {
		close(w.idle)
	}
	if w.pause != nil {
		close(w.pause)
		w.pause = nil
	}
}

// rest waits until nothing runs for a moment, or the limit. It ends nothing.
func (w *work) rest(limit time.Duration) {
	w.mu.Lock()
	if w.running == 0 {
		w.mu.Unlock()
		return
	}
	if w.pause == nil {
		w.pause = make(chan struct{})
	}
	pause := w.pause
	w.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-pause:
	case <-timer.C:
	}
}

// wait ends the counting and returns how much is left when nothing is, or at the
// limit. It is called once.
func (w *work) wait(limit time.Duration) (left int) {
	w.mu.Lock()
	w.idle = make(chan struct{})
	if w.running == 0 {
		close(w.idle)
	}
	w.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.idle:
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

// Life is a session's, for those who do something in its name that its proxies
// know nothing of, as the push gateway does. It is that of one session, and not of
// the next one with its id.
type Life struct{ s *session }

// Life returns the life of an open session. ok is false when there is none:
// nothing may be done in its name.
func (r *Registry) Life(id string) (life Life, ok bool) {
	s := r.find(id)
	return Life{s}, s != nil
}

// Ended is closed when the session's end begins, at which whatever is done in its
// name should stop.
func (l Life) Ended() <-chan struct{} { return l.s.ctx.Done() }

// Hold makes the end wait until release is called, 5 s at the most, because
// something is still to be done. ok is false when the end has come too far.
func (l Life) Hold() (release func(), ok bool) { return l.s.work.begin() }
