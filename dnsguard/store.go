package dnsguard

import (
	"sync"
)

// Store keeps what belongs to sessions rather than to a configuration: caches,
// pins, spent budgets, fake addresses. Guards of successive configurations
// that are given the same Store carry all of it over a reload, so that a budget
// is not refilled and a pin not lost because an operator edited a list. Sessions
// share nothing in it. The zero Store is ready.
type Store struct {
	mu       sync.Mutex
	sessions map[string]*session
}

// session is the state of one session. It lives as long as a View of it.
type session struct {
	id   string
	refs int // guarded by Store.mu

	mu     sync.Mutex // guards all below
	cache  cache
	pins   pins
	budget budget
	bucket bucket
	fakes  fakes
	quiet  quiet
}

// open returns the state of session id, new or shared with the views of it that
// are still open.
func (s *Store) open(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.sessions[id]
	if state == nil {
		if s.sessions == nil {
			s.sessions = make(map[string]*session)
		}
		state = &session{id: id}
		s.sessions[id] = state
	}
	state.refs++
	return state
}

// close forgets the state with its last view.
func (s *Store) close(state *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state.refs--; state.refs == 0 {
		delete(s.sessions, state.id)
	}
}
