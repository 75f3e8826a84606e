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
	if w.running == 0 && w.idle != nil {
		close(w.idle)
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

// Work begins something in a session's name that its proxies know nothing of, as
// the push gateway does. ended is closed when the session's end begins, at which
// the work should stop; finished is called when nothing of it is left, for the
// end waits for that, if not for ever. ok is false when there is no such session,
// or none any more: nothing may be done in its name.
func (r *Registry) Work(id string) (ended <-chan struct{}, finished func(), ok bool) {
	s := r.find(id)
	if s == nil {
		return nil, func() {}, false
	}
	finished, ok = s.work.begin()
	return s.ctx.Done(), finished, ok
}
