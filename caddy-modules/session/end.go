package session

import (
	"log/slog"
	"sync"
	"time"

	"postern/caddy-modules/session/lease"
)

// newsFor bounds how long the end of a session waits for its launcher to read why.
const newsFor = time.Second

// ending says how a session ends: one of the End codes of package lease for
// programs, a sentence for people.
type ending struct{ code, reason string }

var (
	endRequested = ending{lease.EndRequested, "closed on request"}
	endClosing   = ending{lease.EndClosing, "the appliance is shutting down"}
	endFailed    = ending{lease.EndFailed, "a listener failed"}
	endLeft      = ending{lease.EndLeft, "the launcher ended its lease"}
	endDeaf      = ending{lease.EndLeft, "the launcher did not take its answer"}
)

// refusal is what whoever is opening the session is told.
func (e *ending) refusal() *lease.Error {
	code := lease.CodeClosing // a launcher may try again
	if e.code == lease.EndRequested {
		code = lease.CodeEnded
	}
	return &lease.Error{Code: code, Message: "the session was ended while it was being opened: " + e.reason}
}

// end ends the session, and returns when that is complete. Of several callers
// the first one's reason counts. A session that is still being opened stops that.
func (s *session) end(why ending) {
	s.why.CompareAndSwap(nil, &why)
	s.cancel()
	<-s.ready
	if s.failed == nil {
		s.ending.Do(s.tearDown)
	}
	<-s.done
}

// tearDown takes everything back that open gave. The id is free for another
// session as soon as nothing of this one can be reached; what is still done in
// its name, and revoking its token, may take the forge some seconds more.
func (s *session) tearDown() {
	r, why := s.registry, s.why.Load()
	defer r.tasks.Done()
	defer close(s.done)
	var revoking sync.WaitGroup
	revoking.Go(s.revoke)

	s.front.close()
	s.names.stop()
	s.terms.Load().stop()
	r.own.set(s, nil)
	s.denials.close()
	s.last = lease.Event{Time: time.Now(), Type: lease.EventSessionClose, Session: s.spec.ID, Fields: map[string]any{
		"code": why.code, "reason": why.reason, "denied": s.denied.Load(), "seconds": time.Since(s.opened).Seconds(),
	}}
	r.Publish(s.last)
	if s.events != nil {
		s.events.cancel()
	}
	r.release(s)
	s.settleWork()
	revoking.Wait()
	s.settleNews()
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "session closed", slog.String("code", why.code), slog.String("reason", why.reason))
}

// settleWork waits for what is done in the session's name.
func (s *session) settleWork() {
	if left := s.work.wait(workFor); left > 0 {
		s.log.LogAttrs(s.ctx, slog.LevelError, "the session has ended and something is still done in its name", slog.Int("count", left))
	}
}

// settleNews waits until the launcher has read why, which it obeys: the process
// may be about to close every connection.
func (s *session) settleNews() {
	if s.told == nil {
		return
	}
	timer := time.NewTimer(newsFor)
	defer timer.Stop()
	select {
	case <-s.told:
	case <-timer.C: // it does not read
	}
}

// release makes the id free again.
func (r *Registry) release(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[s.spec.ID] == s {
		delete(r.sessions, s.spec.ID)
	}
}
