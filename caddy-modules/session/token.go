package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"postern/caddy-modules/session/lease"
)

const (
	// mintFor bounds the minting of a read token. It must leave a launcher, which
	// waits 30 s for its answer, time to hear that it failed.
	mintFor = 20 * time.Second

	// revokeFor bounds how long a token may outlive its session.
	revokeFor = 5 * time.Second

	// revokeEvery is the pause between attempts.
	revokeEvery = 500 * time.Millisecond

	// lateMintFor is how long the end of the process waits for a forge that is
	// making a token.
	lateMintFor = 5 * time.Second
)

// holderKey is the context key under which a Broker finds the holder.
type holderKey struct{}

// HolderFrom returns the process whose life bounds that of the token a Broker is
// asked to mint: the launcher of the run. It is zero for an API session, and in
// any context but that of Broker.Mint.
func HolderFrom(ctx context.Context) lease.Process {
	holder, _ := ctx.Value(holderKey{}).(lease.Process)
	return holder
}

// token is the read token of a session. The value is in memory alone: in no log,
// no event, and no Info. What another one replaced is a token of its own.
type token struct {
	turn turnstile // of whoever replaces it

	mu      sync.Mutex
	value   string
	expires time.Time
	minted  time.Time // zero for one of a former process
	revoke  func(context.Context) error
	ended   bool  // the session is over: nothing takes its place
	failure error // of the last attempt to replace it
	failed  time.Time
}

func (t *token) get() (value string, expires time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value, t.expires
}

func (t *token) set(value string, expires time.Time, revoke func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.value, t.expires, t.revoke, t.minted = value, expires, revoke, time.Now()
}

// adopt takes over a token of a former process, whose end is not known.
func (t *token) adopt(value string, revoke func(context.Context) error) {
	t.set(value, time.Time{}, revoke)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.minted = time.Time{}
}

// take empties t for good and returns how to revoke what was in it.
func (t *token) take() func(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	revoke := t.revoke
	t.value, t.revoke, t.ended = "", nil, true
	return revoke
}

// obtain gives the session its read token: the one a launcher hands back after a
// crash, or a new one. Without a forge, or a repository, there is none.
func (s *session) obtain(ctx context.Context, g *Generation, resume *lease.Resume) error {
	if resume != nil && resume.ReadToken != "" && resume.Born != s.registry.born {
		// The run has this one in its environment already. A resume of this very
		// process is another case: its session has ended and its token with it.
		if g.Broker == nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "no forge is configured to revoke the run's earlier token at; it will expire by itself")
			return nil
		}
		s.token.adopt(resume.ReadToken, g.Broker.Adopt(resume.ReadToken))
		return nil
	}
	if g.Broker == nil || s.spec.Repository == "" {
		return nil
	}
	m, err := s.mint(ctx, g.Broker)
	if err != nil {
		return &lease.Error{Code: lease.CodeUnavailable, Message: fmt.Sprintf("mint a read token for %s: %v; without the repository the session needs none", s.spec.Repository, err)}
	}
	s.token.set(m.value, m.expires, m.revoke)
	return nil
}

// minted is what a Broker made.
type minted struct {
	value   string
	expires time.Time
	revoke  func(context.Context) error
}

// mint asks the broker for a token, and stops waiting when ctx ends. The minting
// itself goes on: a request that is cancelled on its way may still make a token,
// which nobody could revoke. What comes too late is revoked at once.
func (s *session) mint(ctx context.Context, broker Broker) (minted, error) {
	finished, ok := s.work.begin()
	if !ok {
		return minted{}, errors.New("the session has ended")
	}
	// A broker that ignores its context holds nobody up for ever.
	ctx, cancel := context.WithTimeout(ctx, mintFor+time.Second)
	defer cancel()
	type result struct {
		minted
		err error
	}
	came, left := make(chan result), make(chan struct{})
	s.registry.tasks.Go(func() {
		defer finished()
		mintCtx, cancel := context.WithTimeout(context.WithValue(context.WithoutCancel(ctx), holderKey{}, s.holder), mintFor)
		defer cancel()
		// A process that ends does not wait for a slow forge as long as a run does.
		defer context.AfterFunc(s.registry.ctx, func() { time.AfterFunc(lateMintFor, cancel) })() //nolint:contextcheck // two contexts end this one
		var r result
		r.value, r.expires, r.revoke, r.err = broker.Mint(mintCtx, s.spec.Repository)
		select {
		case came <- r:
		case <-left:
			var late token
			late.set(r.value, r.expires, r.revoke)
			s.registry.revokeToken(&late, s.log) //nolint:contextcheck // the one at hand has run out, or is about to
		}
	})
	select {
	case r := <-came:
		return r.minted, r.err
	case <-ctx.Done():
		close(left)
		return minted{}, context.Cause(ctx)
	}
}

// revoke makes the session's token useless, trying for revokeFor.
func (s *session) revoke() { s.registry.revokeToken(&s.token, s.log) }

func (r *Registry) revokeToken(t *token, log *slog.Logger) {
	revoke := t.take()
	if revoke == nil {
		return
	}
	// Not the session's context, which has ended, nor the registry's.
	ctx, cancel := context.WithTimeout(context.Background(), revokeFor)
	defer cancel()
	for {
		err := attempt(ctx, revoke)
		if err == nil {
			log.LogAttrs(ctx, slog.LevelDebug, "read token revoked")
			return
		}
		select {
		case <-time.After(revokeEvery):
		case <-ctx.Done():
			r.unrevoked.Add(1)
			log.LogAttrs(ctx, slog.LevelError, "read token not revoked in time", slog.Any("error", err))
			return
		}
	}
}

// disown revokes the token that a launcher hands back for a session it does not
// get: the host has ended it, and what the run still holds ends with it.
func (r *Registry) disown(resume *lease.Resume, log *slog.Logger) {
	g := r.governing.Load()
	if resume == nil || resume.ReadToken == "" || resume.Born == r.born || g == nil || g.Broker == nil {
		return // one of this process has been revoked with its session
	}
	var t token
	t.set(resume.ReadToken, time.Time{}, g.Broker.Adopt(resume.ReadToken))
	r.revokeToken(&t, log)
}

// attempt keeps a broker that ignores its context from holding up the end.
func attempt(ctx context.Context, revoke func(context.Context) error) error {
	result := make(chan error, 1)
	go func() { result <- revoke(ctx) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return errors.Join(errors.New("the broker did not answer"), ctx.Err())
	}
}
