package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"postern/caddy-modules/session/lease"
)

// How a lost appliance is waited for: at first often, because a restart takes a
// second, and not for ever.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
	giveUp     = 10 * time.Minute
)

// passing are refusals that may be over the next time: the appliance is just coming
// up or going down, or has not noticed yet that our last connection is gone.
var passing = []string{lease.CodeInUse, lease.CodeNotConfigured, lease.CodeUnavailable, lease.CodeClosing, lease.CodeTimeout}

// keeper keeps a run's listeners lent for as long as the run lives. While no
// appliance has them, connections wait in the kernel's backlog; the command notices
// nothing of a restart but a pause.
type keeper struct {
	path  string
	hello lease.Hello
	pair  lease.Pair
	more  []lease.Lent // the run's sockets for names; fewer once the appliance does not serve them

	lend  func(context.Context, string, lease.Hello, lease.Pair, ...lease.Lent) (*lease.Lease, error) // lease.Lend
	event func(lease.Event)
	alone func() // nobody will take the listeners any more; nil: they are closed, no more
	ended func() // the session was ended on request; nil: that is worth a warning only
	warn  func(format string, args ...any)

	mu   sync.Mutex
	last *lease.Lease // the lease that lives, or lived last

	heard chan struct{} // by exited: closed when the appliance has said everything
}

// report tells the appliance of the run, if there is one: whoever follows the session
// over the control API sees it. That it does not arrive is no matter of the run.
func (k *keeper) report(e lease.Event) {
	if l := k.lease(); l != nil {
		_ = l.Report(e)
	}
}

// lastWords bounds the wait for what the appliance has still to say of a run.
const lastWords = time.Second

// exited reports that the command has ended, and waits until the appliance has said what
// was refused to it: the report comes back behind that. keep must be reading.
func (k *keeper) exited(e lease.Event) {
	l := k.lease()
	if l == nil {
		return
	}
	heard := make(chan struct{})
	k.mu.Lock()
	k.heard = heard
	k.mu.Unlock()
	if l.Report(e) != nil {
		return // the appliance is away, and says nothing either
	}
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-heard:
	case <-l.Done():
	case <-timer.C:
	}
}

func (k *keeper) lease() *lease.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// hear takes an event of the appliance's.
func (k *keeper) hear(e lease.Event) {
	if e.Type != lease.EventExit {
		k.event(e)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.heard != nil {
		close(k.heard)
		k.heard = nil
	}
}

// hold notes the lease that lives.
func (k *keeper) hold(l *lease.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = l
}

// first lends for the first time: the appliance is there, or the run does not start.
func (k *keeper) first(ctx context.Context) (*lease.Lease, error) {
	l, err := k.lend(ctx, k.path, k.hello, k.pair, k.more...)
	if err != nil {
		return nil, err
	}
	answer := l.Answer()
	k.settle(answer.DNS)
	k.hello.Resume = &lease.Resume{ReadToken: answer.ReadToken, Born: answer.Born}
	return l, nil
}

// keep reads events until ctx ends, and lends again whenever the lease is lost, but
// not when the session was ended on request. It returns when the last lease is closed.
func (k *keeper) keep(ctx context.Context, l *lease.Lease) {
	for {
		k.hold(l)
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		for e := range l.Events() {
			k.hear(e)
		}
		stop()
		<-l.Done()
		_ = l.Close()
		if ctx.Err() != nil {
			return
		}
		if l.End() == lease.EndRequested {
			// Final: whoever may end sessions has ended this one.
			k.abandon()
			if k.ended != nil {
				k.ended()
				return
			}
			k.warn("the session was ended from outside; the run is without network and pushes from now on")
			return
		}
		if terms := l.Terms(); terms != nil {
			// What the session was changed to, it is with the next one as well.
			k.hello.Amend(*terms)
		}
		k.warn("the appliance is gone; requests wait until it is back")
		var err error
		if l, err = k.again(ctx); err != nil {
			if ctx.Err() == nil {
				// Refused at once is better than waiting for nobody.
				k.abandon()
				k.warn("the run is without network and pushes from now on: %v", err)
			}
			return
		}
		k.warn("the appliance is back")
	}
}

// abandon closes what only a session justifies.
func (k *keeper) abandon() {
	_ = k.pair.Close()
	k.settle("")
	if k.alone != nil {
		k.alone()
	}
}

// again lends the same listeners until somebody takes them.
func (k *keeper) again(ctx context.Context) (*lease.Lease, error) {
	deadline := time.Now().Add(giveUp)
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
		l, err := k.lend(ctx, k.path, k.hello, k.pair, k.more...)
		if err == nil {
			k.settle(l.Answer().DNS)
			// The token the command holds stays the one to revoke; what the new
			// appliance calls itself is what the next one is told.
			resume := *k.hello.Resume
			resume.Born = l.Answer().Born
			k.hello.Resume = &resume
			return l, nil
		}
		var refused *lease.RefusedError
		if errors.As(err, &refused) && !slices.Contains(passing, refused.Code) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("waited %s: %w", giveUp, err)
		}
	}
}
