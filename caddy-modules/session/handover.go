package session

import (
	"errors"
	"reflect"
	"sync"
	"time"

	"postern/caddy-modules/session/lease"
)

// meetFor bounds the wait of a change for a launcher that is just being answered.
const meetFor = 5 * time.Second

// launcher is who lends a session, and what it knows of the session's terms: nothing is
// written down here, and it is the launcher who brings the session to the next appliance.
// An API session has none; its host knows what it asked for.
type launcher struct {
	met chan struct{} // closed when lease is set

	mu    sync.Mutex
	lease *lease.Request
	knows lease.Terms
}

// meet has the launcher told of the terms from now on, and at once where they have
// changed since the session was opened. The answer has been sent.
func (s *session) meet(req *lease.Request) error {
	s.launcher.mu.Lock()
	s.launcher.lease = req
	s.launcher.mu.Unlock()
	close(s.launcher.met)
	return s.handTerms()
}

// handOver returns when the launcher knows the terms of its session. An error means that
// it may not.
func (s *session) handOver() error {
	if s.kind != kindLease {
		return nil
	}
	timer := time.NewTimer(meetFor)
	defer timer.Stop()
	select {
	case <-s.launcher.met:
		return s.handTerms()
	case <-s.ctx.Done():
		return errors.New("the session has ended")
	case <-timer.C:
		return errors.New("it has not taken its answer")
	}
}

func (s *session) handTerms() error {
	l := &s.launcher
	l.mu.Lock()
	defer l.mu.Unlock()
	// Read under the lock: of two changes the launcher hears of the later one last.
	t := s.terms.Load()
	now := lease.TermsOf(t.spec, t.caps)
	if reflect.DeepEqual(now, l.knows) {
		return nil
	}
	if err := l.lease.SendTerms(now); err != nil {
		return err
	}
	l.knows = now
	return nil
}
