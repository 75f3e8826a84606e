package gitgw

import (
	"context"
	"sync"
	"time"
)

// looks keep the tokens that listings are fetched with for a while, one for each
// run and repository: a run that asks for refs over and over costs the forge's API
// one token a minute. They never serve another run. The zero value is ready to use.
type looks struct {
	mu      sync.Mutex
	kept    map[lookKey]*keptLook
	closing chan struct{} // made by the first keeper
	closed  bool
	keepers sync.WaitGroup
}

type lookKey struct {
	run  string
	repo Repo
}

// keptLook is one token, from its minting to its revocation.
type keptLook struct {
	key     lookKey
	ready   chan struct{} // closed when the minting is over
	token   Token         // none when it failed
	lacking string
	revoke  func() // called once, when the token is retired and nobody uses it

	users   int           // under mu of looks
	over    bool          // the same: it serves nobody new
	retired chan struct{} // closed with over
}

// borrow returns the token that serves the caller's listings of repo, minted where
// there is none. Callers that come at the same time share one minting.
func (l *looks) borrow(ctx context.Context, g *Gateway, caller Caller, repo Repo) look {
	none := look{release: func(bool) {}}
	if g.Minter == nil {
		return none
	}
	one, fresh := l.join(lookKey{caller.Session, repo})
	if fresh {
		one.token, one.lacking = g.mintLook(ctx, caller, repo)
		l.keep(ctx, g, caller, one)
		close(one.ready)
	}
	select {
	case <-one.ready:
	case <-ctx.Done():
		l.giveBack(one, false)
		return none
	}
	if one.token.IsZero() {
		none.lacking = one.lacking
		l.giveBack(one, false)
		return none
	}
	return look{
		token: one.token, pauses: g.Limits.withDefaults().Retry,
		release: func(spoilt bool) { l.giveBack(one, spoilt) },
	}
}

// join makes the caller a user of the token for key; fresh means that it is his
// to mint.
func (l *looks) join(key lookKey) (one *keptLook, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one = l.kept[key]
	if one == nil {
		fresh = true
		one = &keptLook{key: key, ready: make(chan struct{}), retired: make(chan struct{}), revoke: func() {}}
		if l.kept == nil {
			l.kept = map[lookKey]*keptLook{}
		}
		l.kept[key] = one
	}
	one.users++
	return one, fresh
}

// keep has a token that was minted retired when its time is over, when the run
// ends and when the gateway is closed. The run's end waits until it is revoked.
// Where it is too late for that, and where there is no token, it serves only those
// who wait for it already.
func (l *looks) keep(ctx context.Context, g *Gateway, caller Caller, one *keptLook) {
	if one.token.IsZero() {
		l.retire(one)
		return
	}
	release, held := caller.hold()
	one.revoke = func() {
		g.revokeLook(ctx, caller, one.key.repo, one.token)
		release()
	}
	life := g.Limits.withDefaults().Look
	if end := one.token.Expires(); !end.IsZero() {
		life = min(life, time.Until(end)/2) // none begins with one that is about to expire
	}
	l.mu.Lock()
	if l.closing == nil {
		l.closing = make(chan struct{})
	}
	closing, closed := l.closing, l.closed
	if held && !closed {
		l.keepers.Add(1)
	}
	l.mu.Unlock()
	if !held || closed {
		l.retire(one)
		return
	}
	go func() {
		defer l.keepers.Done()
		timer := time.NewTimer(life)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-caller.Ended:
		case <-closing:
		case <-one.retired:
		}
		l.retire(one)
	}()
}

// retire ends a token's service. It is revoked here, or by the last of its users.
func (l *looks) retire(one *keptLook) {
	l.mu.Lock()
	idle := l.end(one) && one.users == 0
	l.mu.Unlock()
	if idle {
		one.revoke()
	}
}

// end reports whether the service had not been ended before. mu is held.
func (l *looks) end(one *keptLook) bool {
	if one.over {
		return false
	}
	one.over = true
	close(one.retired)
	if l.kept[one.key] == one {
		delete(l.kept, one.key)
	}
	return true
}

// giveBack ends one use. A token that is spoilt serves nobody else.
func (l *looks) giveBack(one *keptLook, spoilt bool) {
	l.mu.Lock()
	one.users--
	if spoilt {
		l.end(one)
	}
	last := one.over && one.users == 0
	l.mu.Unlock()
	if last {
		one.revoke()
	}
}

// close retires every token and waits until those that nobody uses are revoked.
// Tokens that are minted afterwards are revoked after their use.
func (l *looks) close() {
	l.mu.Lock()
	if !l.closed && l.closing != nil {
		close(l.closing)
	}
	l.closed = true
	l.mu.Unlock()
	l.keepers.Wait()
}
