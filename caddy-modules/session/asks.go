package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"postern/caddy-modules/policy"
)

const (
	// AskWait is the default of Approvals.Wait: clients of a proxy give up after a minute
	// or so.
	AskWait = 30 * time.Second

	// maxAsks bounds the questions that one session has open, each of which holds
	// connections and is a line on somebody's screen.
	maxAsks = 64

	// maxRefused bounds the targets for which a session remembers a no. A run that
	// makes up more is asked about them again.
	maxRefused = 1024
)

// errManyAsks is why a question was not put.
var errManyAsks = errors.New("too many questions of this session are open")

// askKey is what one question is about.
type askKey struct {
	host policy.Host
	port uint16
}

func keyOf(t policy.Target) askKey { return askKey{t.Host(), t.Port()} }

// asks are the open questions of a session: one for each host and port, however many
// connections wait for its answer. The zero value is ready to use.
type asks struct {
	mu      sync.Mutex
	open    map[askKey]*inquiry
	refused map[askKey]string // a no for the rest of the session, and its reason
}

// inquiry is one open question.
type inquiry struct {
	waiting int // connections; guarded by asks.mu
	cancel  context.CancelFunc
	over    chan struct{} // closed when what follows is set
	answer  HostAnswer
	err     error
}

// ask joins the question about key, or opens it by put, which runs until ctx ends. The
// question is withdrawn when the last of those who wait for it has gone.
//
// life bounds every question; ctx is that of the one who waits.
func (a *asks) ask(ctx, life context.Context, key askKey, wait time.Duration, put func(context.Context) (HostAnswer, error)) (HostAnswer, error) {
	q, err := a.join(life, key, wait, put)
	if err != nil {
		return HostAnswer{}, err
	}
	defer a.leave(key, q)
	select {
	case <-q.over:
		return q.answer, q.err
	case <-ctx.Done():
		return HostAnswer{}, context.Cause(ctx)
	}
}

func (a *asks) join(life context.Context, key askKey, wait time.Duration, put func(context.Context) (HostAnswer, error)) (*inquiry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.open[key]; q != nil {
		q.waiting++
		return q, nil
	}
	if len(a.open) >= maxAsks {
		return nil, errManyAsks
	}
	ctx, cancel := context.WithTimeout(life, wait)
	q := &inquiry{waiting: 1, cancel: cancel, over: make(chan struct{})}
	if a.open == nil {
		a.open = map[askKey]*inquiry{}
	}
	a.open[key] = q
	go func() {
		defer cancel()
		q.answer, q.err = put(ctx)
		a.mu.Lock()
		if a.open[key] == q {
			delete(a.open, key)
		}
		a.mu.Unlock()
		close(q.over)
	}()
	return q, nil
}

// leave withdraws a question for which nobody waits any more. The next who asks opens
// another one.
func (a *asks) leave(key askKey, q *inquiry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q.waiting--
	if q.waiting > 0 {
		return
	}
	if a.open[key] == q {
		delete(a.open, key)
	}
	q.cancel()
}

// refuse remembers a no for the rest of the session.
func (a *asks) refuse(key askKey, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused == nil {
		a.refused = map[askKey]string{}
	}
	if len(a.refused) < maxRefused {
		a.refused[key] = reason
	}
}

func (a *asks) refusal(key askKey) (reason string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reason, ok = a.refused[key]
	return reason, ok
}
