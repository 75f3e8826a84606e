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
	// freshFor is how long a token that FreshReadToken gives is at least going to
	// live: longer than a clone of a large repository takes to ask its last question.
	freshFor = 10 * time.Minute

	// oldFor is how long the token before lives on, for who was given it a moment
	// ago and has not used it yet.
	oldFor = 2 * time.Minute

	// freshAgain is the pause after a minting that failed: a run that asks in a loop
	// does not use up the forge's patience.
	freshAgain = 10 * time.Second
)

// ErrNoReadToken says that a session has no read token and is to have none: it has
// no repository, or one of a forge that gives none.
var ErrNoReadToken = errors.New("the session has no read token")

// FreshReadToken returns a read token of a session that lives for ten minutes yet,
// or for as long as the forge's tokens do. Where the one at hand does not, it mints
// another: at the moment somebody asks, so that a run that sleeps costs the forge
// nothing. The one before is revoked two minutes later, and all of them with the
// session. A token whose end nobody knows is never replaced, but for one of a
// former process: that one stays until the session ends, since it is in the run's
// environment. Where no other can be had the one at hand is returned as long as it
// lives.
func (r *Registry) FreshReadToken(ctx context.Context, id string) (value string, expires time.Time, err error) {
	s := r.find(id)
	if s == nil {
		return "", time.Time{}, noSession(id)
	}
	return s.fresh(ctx)
}

func (s *session) fresh(ctx context.Context) (string, time.Time, error) {
	// From here on the end waits: a token that comes late is still to be revoked.
	release, ok := s.work.begin()
	if !ok {
		return "", time.Time{}, noSession(s.spec.ID)
	}
	defer release()
	if err := s.token.turn.take(ctx); err != nil {
		return "", time.Time{}, err
	}
	defer s.token.turn.pass()

	value, expires, stale := s.token.look(time.Now())
	if !stale {
		if value == "" {
			return "", time.Time{}, ErrNoReadToken
		}
		return value, expires, nil
	}
	// The token is the session's, whether or not the one who asked waits for it.
	m, err := s.renew(s.ctx) //nolint:contextcheck // see above
	if err == nil {
		return m.value, m.expires, nil
	}
	value, expires, _ = s.token.look(time.Now())
	if value != "" && (expires.IsZero() || time.Now().Before(expires)) {
		// It serves for some minutes yet, or for all that is known.
		return value, expires, nil
	}
	return "", time.Time{}, err
}

// renew mints a token in the place of the one at hand. The turn is the caller's.
func (s *session) renew(ctx context.Context) (minted, error) {
	if err := s.token.failedLately(time.Now()); err != nil {
		return minted{}, err
	}
	g := s.view.Load().gen
	if g == nil || g.Broker == nil {
		return minted{}, errors.New("the configuration has no forge any more that would make a new read token")
	}
	m, err := s.mint(ctx, g.Broker)
	if err == nil && m.value == "" {
		err = errors.New("the configuration has no token for the repository any more")
	}
	if err != nil {
		err = fmt.Errorf("mint a new read token for %s: %w", s.spec.Repository, err)
		if ctx.Err() == nil {
			s.token.fail(err, time.Now())
		}
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "read token not renewed", slog.Any("error", err)) //nolint:contextcheck // the session's own life
		return minted{}, err
	}
	old, ok := s.token.replace(m)
	if !ok {
		// The session has ended meanwhile, and taken what it had.
		var late token
		late.set(m.value, m.expires, m.revoke)
		s.registry.revokeToken(&late, s.log) //nolint:contextcheck // the one at hand may have ended
		return minted{}, noSession(s.spec.ID)
	}
	s.retire(old)                                                                                //nolint:contextcheck // it outlives the question
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "read token renewed", slog.Time("expires", m.expires)) //nolint:contextcheck // the session's own life
	s.registry.Publish(lease.Event{Type: lease.EventToken, Session: s.spec.ID, Fields: map[string]any{"expires": m.expires}})
	return m, nil
}

// retire revokes a token that was replaced: after a while, and with the session at
// the latest, whose end waits for it.
func (s *session) retire(old *token) {
	if old.revoke == nil {
		return
	}
	release, ok := s.work.begin()
	s.registry.tasks.Go(func() {
		if ok {
			defer release()
			var later <-chan time.Time
			if !old.minted.IsZero() {
				timer := time.NewTimer(oldFor)
				defer timer.Stop()
				later = timer.C
			}
			select {
			case <-later:
			case <-s.ctx.Done():
			}
		}
		s.registry.revokeToken(old, s.log)
	})
}

// look returns the token, and whether another one should take its place.
func (t *token) look(now time.Time) (value string, expires time.Time, stale bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.value == "" || t.ended:
		return "", time.Time{}, false
	case t.minted.IsZero():
		stale = true // of a former process: it may be dead already
	case !t.expires.IsZero():
		// Tokens that live for minutes only are not replaced at every question.
		stale = t.expires.Sub(now) < min(freshFor, t.expires.Sub(t.minted)/2)
	}
	return t.value, t.expires, stale
}

// replace puts another token in the place of t's and returns what was there. ok is
// false when the session has ended.
func (t *token) replace(m minted) (old *token, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, false
	}
	old = &token{value: t.value, expires: t.expires, minted: t.minted, revoke: t.revoke}
	t.value, t.expires, t.revoke, t.minted, t.failure = m.value, m.expires, m.revoke, time.Now(), nil
	return old, true
}

func (t *token) fail(err error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure, t.failed = err, now
}

// failedLately is why there is no other token, as long as it is too early to ask
// the forge again.
func (t *token) failedLately(now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.failed) > freshAgain {
		return nil
	}
	return t.failure
}

// turnstile lets one in at a time, and those who wait give up with their context.
// The zero value is ready to use.
type turnstile struct {
	once sync.Once
	free chan struct{}
}

func (t *turnstile) take(ctx context.Context) error {
	t.once.Do(func() { t.free = make(chan struct{}, 1) })
	select {
	case t.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *turnstile) pass() { <-t.free }
