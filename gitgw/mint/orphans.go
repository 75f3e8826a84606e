package mint

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"postern/gitgw"
)

const (
	// firstAgain and lastAgain are the pauses between attempts to revoke an
	// orphan; each is twice the one before.
	firstAgain = 10 * time.Second
	lastAgain  = 2 * time.Minute

	// holderEvery is how often it is asked whether an orphan's holder still lives.
	holderEvery = time.Second

	// orphanFor bounds one attempt, orphansAtOnce how many are made at a time: a
	// process that was killed may have left as many as maxTokens.
	orphanFor     = 10 * time.Second
	orphansAtOnce = 4

	// orphansARound is how many are taken on before the list is looked at again,
	// so that a forge that hangs does not hold up those of another for long.
	orphansARound = 32
)

// sweep revokes orphans until ctx ends: at once those that a former process left
// without a holder, later those whose holder has gone, and again and again those
// that the forge does not let go of, until they have expired.
func (l *Ledger) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		due, wait := l.due(time.Now())
		if len(due) > 0 {
			l.revokeAll(ctx, due)
			continue
		}
		var later <-chan time.Time
		if wait > 0 {
			later = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-later:
		}
	}
}

// chore is an orphan whose time has come.
type chore struct {
	entry
	by gitgw.Minter
}

// due returns the orphans to be revoked now, and after what time to ask again; 0
// means that nothing is going to be due by itself. What has expired is struck out.
func (l *Ledger) due(now time.Time) (due []chore, wait time.Duration) {
	l.mu.Lock()
	var expired []string
	again := func(d time.Duration) {
		if wait == 0 || d < wait {
			wait = d
		}
	}
	for id, e := range l.tokens {
		left := e.end().Sub(now)
		if left <= 0 {
			// Dead by itself. This holds for tokens in use as well, which their
			// owners revoke all the same.
			expired = append(expired, id)
			continue
		}
		again(left)
		if !e.orphan {
			continue
		}
		by := l.minterFor(e)
		switch {
		case by == nil:
			// No configuration has a minter for the host, and perhaps none will.
		case e.Holder != "" && l.options.Alive != nil && l.options.Alive(e.Holder):
			again(holderEvery)
		case e.next.After(now):
			again(e.next.Sub(now))
		case len(due) < orphansARound:
			due = append(due, chore{*e, by})
		}
	}
	l.mu.Unlock()
	for _, id := range expired {
		l.remove(id)
	}
	return due, wait
}

// minterFor finds who can revoke an orphan: who made it, or the newest minter for
// its host; any of them when the host is not known. mu is held.
func (l *Ledger) minterFor(e *entry) gitgw.Minter {
	if e.minter != nil {
		return e.minter
	}
	for _, s := range slices.Backward(l.minters) {
		if e.Host == "" || slices.Contains(s.hosts, e.Host) {
			return s.Minter
		}
	}
	return nil
}

// revokeAll revokes what is due, a few at a time.
func (l *Ledger) revokeAll(ctx context.Context, due []chore) {
	var all sync.WaitGroup
	slots := make(chan struct{}, orphansAtOnce)
	for _, c := range due {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			l.revokeOrphan(ctx, c)
		})
	}
	all.Wait()
}

func (l *Ledger) revokeOrphan(ctx context.Context, c chore) {
	attrs := []any{slog.String("token_id", c.token.ID()), slog.String("repository", c.Repository), slog.String("access", c.Access)}
	one, cancel := context.WithTimeout(ctx, orphanFor)
	defer cancel()
	err := c.by.Revoke(one, c.token)
	switch {
	case err == nil:
		l.remove(c.token.ID())
		l.log.Info("revoked a token that was left behind", attrs...)
		return
	case ctx.Err() != nil:
		return // the next process goes on
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.tokens[c.token.ID()]
	if e == nil || !e.orphan {
		return
	}
	pause := lastAgain
	if e.tries < 4 { // 10, 20, 40, 80 s
		pause = firstAgain << e.tries
	}
	e.tries++
	e.next = time.Now().Add(pause)
	l.log.Warn("token that was left behind was not revoked", append(attrs, slog.Duration("again_in", pause), slog.Any("error", err))...)
}
