package fakegithub

import (
	"net/http"
	"slices"
)

// auth is what a token check comes to.
type auth uint8

const (
	authOK        auth = iota
	authNone           // no credential at all
	authBad            // unknown, expired or revoked
	authLag            // too young, by fault
	authSuspended      // the installation is suspended
	authHidden         // good, but not for this repository: GitHub says "not found"
)

// authorize judges a token, for one repository unless it is nil. The token is
// a copy of the ledger's entry.
func (s *Server) authorize(value string, r *repo) (Token, auth) {
	if value == "" {
		return Token{}, authNone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[value]
	if t == nil {
		return Token{}, authBad
	}
	t.Uses++
	now := s.now()
	switch {
	case t.Revoked(), !now.Before(t.Expires):
		return Token{}, authBad
	case s.faults.TokenLag > 0 && now.Sub(t.Created) < s.faults.TokenLag:
		return Token{}, authLag
	}
	// The installation may have changed since: suspended, or the repository
	// taken out of the selection.
	if i := s.installs[t.Installation]; t.Installation != 0 {
		switch {
		case i == nil:
			return Token{}, authBad
		case i.Suspended:
			return Token{}, authSuspended
		case r != nil && !i.covers(r):
			return t.clone(), authHidden
		}
	}
	if r != nil && !slices.Contains(t.repoIDs, r.id) {
		return t.clone(), authHidden
	}
	return t.clone(), authOK
}

// api writes the refusal as the REST API words it.
func (a auth) api(w http.ResponseWriter) {
	switch a {
	case authNone:
		apiError(w, http.StatusUnauthorized, "Requires authentication")
	case authSuspended:
		apiError(w, http.StatusForbidden, "This installation has been suspended")
	case authHidden:
		apiError(w, http.StatusNotFound, "Not Found")
	default:
		apiError(w, http.StatusUnauthorized, "Bad credentials")
	}
}
