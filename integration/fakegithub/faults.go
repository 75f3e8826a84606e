package fakegithub

import (
	"net/http"
	"time"
)

// Faults are the bad days of GitHub. The zero value is a good day. They are
// read once by each request, so a change applies to requests that follow.
type Faults struct {
	// TokenLag refuses a token younger than this on git and API requests, as
	// replication does in a token's first seconds. LagStatus is 401 unless
	// set; 403 and 404 have been seen too.
	TokenLag  time.Duration
	LagStatus int

	// API, Advert, Push answer every API request, every receive-pack
	// advertisement, every receive-pack POST with this 5xx status. A push is
	// answered before its body is read.
	API, Advert, Push int

	// Mint and Revoke answer the request for a token and DELETE
	// /installation/token with this status, and do neither.
	Mint, Revoke int

	// RateLimit refuses every API request as GitHub's limiters do.
	RateLimit RateLimit

	// AbortReport cuts the connection in the middle of the answer to a push
	// that has succeeded.
	AbortReport bool

	// TruncateReport ends that answer cleanly in the middle of a pkt-line.
	// git 2.39 waits for ever for the rest.
	TruncateReport bool

	// SlowReport spreads the answer to a push over this time, a few bytes at
	// a time.
	SlowReport time.Duration

	// HoldAdvert, HoldPush and HoldRevoke keep a request of that kind without an
	// answer, and without doing what it asks, until its client has gone. A push
	// is held when the body has arrived.
	HoldAdvert, HoldPush, HoldRevoke bool

	// MaxPack is the largest pack taken, in bytes; 0 is no limit.
	MaxPack int64
}

// RateLimit names GitHub's two limiters.
type RateLimit uint8

// The primary limit is a budget by the hour (X-RateLimit headers), the
// secondary one a brake on bursts (Retry-After).
const (
	NoRateLimit RateLimit = iota
	PrimaryRateLimit
	SecondaryRateLimit
	// TooManyRequests is the primary limit under status 429, which GitHub says it
	// may use for either.
	TooManyRequests
)

// SetFaults replaces the faults; SetFaults(Faults{}) ends them.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// hold keeps a request until its client has gone, or the server closes.
func (s *Server) hold(r *http.Request) {
	drain(r.Body) // the client's end is noticed only behind it
	select {
	case <-r.Context().Done():
	case <-s.closing().Done():
	}
	panic(http.ErrAbortHandler)
}

func (s *Server) fault() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}
