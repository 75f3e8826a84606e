package gitgw

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of what is remembered: entries of one run and of all. Each is a question
// that stays open, and so a line on somebody's screen.
const (
	maxRemembered    = 512
	maxRememberedRun = 8
)

// Approvals remembers the questions of pushes that gave up waiting, and the answers
// to them, so that the same push can be made again. An answer is good once, for a
// push of the same refs with the same old and new ids and the same options, in the
// same session and from the same approver, and for minutes: then, or with the
// session, it is forgotten. The zero value is ready to use.
type Approvals struct {
	mu  sync.Mutex
	all []*inquiry // oldest first
}

// inquiry is one question on its way to an answer, which may outlive its push.
type inquiry struct {
	scope    inquiryScope
	question Question
	refs     map[askedRef]bool // that wait for a yes; false: used
	stop     context.CancelFunc
	answered chan struct{} // closed when answer and err are set
	over     chan struct{} // closed when nobody wants it any more
	answer   Answer
	err      error
	claimed  bool // a push waits for it: guarded by Approvals.mu
}

func (q *inquiry) isAnswered() bool {
	select {
	case <-q.answered:
		return true
	default:
		return false
	}
}

// inquiryScope is what has to be the same for an answer to count. ended is the life
// of the session: the next session with its name is another one.
type inquiryScope struct {
	session  string
	ended    <-chan struct{}
	repo     Repo
	options  string
	approver string
}

type askedRef struct{ ref, old, new string }

// scopeOf is the scope of a push's question.
func (p *push) scopeOf() inquiryScope {
	return inquiryScope{
		session: p.caller.Session, ended: p.caller.Ended, repo: p.up.repo,
		// No option holds the separator, as none holds a control character.
		options: strings.Join(p.head.Options, "\x00"), approver: p.g.ApproverName,
	}
}

// askedRefs are the refs of the push that need a yes.
func (p *push) askedRefs() []askedRef {
	var refs []askedRef
	for _, r := range p.record.Refs {
		if r.Verdict == Ask {
			refs = append(refs, askedRef{r.Ref, r.Old, r.New})
		}
	}
	return refs
}

// claim finds an earlier question that was about all of refs, and takes it: it is
// no other push's until it is let go.
func (a *Approvals) claim(scope inquiryScope, refs []askedRef) *inquiry {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.all {
		covers := func(r askedRef) bool { return q.refs[r] }
		if q.claimed || q.scope != scope || !all(refs, covers) {
			continue
		}
		q.claimed = true
		return q
	}
	return nil
}

func all[T any](list []T, f func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !f(v) })
}

// use takes what the answer said of refs: it is good once. What it said of others
// stays.
func (a *Approvals) use(q *inquiry, refs []askedRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q.claimed = false
	for _, r := range refs {
		delete(q.refs, r)
	}
	if len(q.refs) == 0 {
		a.drop(q)
	}
}

// leave lets a question stay open without its push. It reports whether there was
// room to remember it; if not, it is withdrawn.
func (a *Approvals) leave(q *inquiry) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	q.claimed = false
	if slices.Contains(a.all, q) {
		return true // it was left before
	}
	select {
	case <-q.over:
		return false // its session has ended
	default:
	}
	var own []*inquiry
	for _, other := range a.all {
		if other.scope.session == q.scope.session && other.scope.ended == q.scope.ended && !other.claimed {
			own = append(own, other)
		}
	}
	// A run that asks much loses its own questions, and none of others.
	if len(own) >= maxRememberedRun {
		a.drop(own[0])
	}
	if len(a.all) >= maxRemembered {
		a.drop(q)
		return false
	}
	a.all = append(a.all, q)
	return true
}

// forget withdraws a question or drops its answer.
func (a *Approvals) forget(q *inquiry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(q)
}

// drop is forget with the lock held. It may be called again.
func (a *Approvals) drop(q *inquiry) {
	a.all = slices.DeleteFunc(a.all, func(other *inquiry) bool { return other == q })
	q.stop()
	select {
	case <-q.over:
	default:
		close(q.over)
	}
}

// Close withdraws every question that was left open and forgets every answer.
func (a *Approvals) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.all) > 0 {
		a.drop(a.all[0])
	}
	return nil
}

// put asks the approver and keeps the answer, until it is used, its time is over or
// its session has ended. The question is the returned inquiry's, which is claimed.
func (a *Approvals) put(approver Approver, scope inquiryScope, question Question, refs []askedRef, remember time.Duration) *inquiry {
	ctx, stop := context.WithDeadline(context.Background(), question.Deadline)
	q := &inquiry{
		scope: scope, question: question, refs: map[askedRef]bool{}, stop: stop, claimed: true,
		answered: make(chan struct{}), over: make(chan struct{}),
	}
	for _, r := range refs {
		q.refs[r] = true
	}
	type result struct {
		answer Answer
		err    error
	}
	// Buffered: an approver that ignores its context must not hold anything else.
	heard := make(chan result, 1)
	go func() {
		answer, err := approver.Ask(ctx, question)
		heard <- result{answer, err}
	}()
	go func() {
		defer a.forget(q)
		select {
		case r := <-heard:
			q.answer, q.err = r.answer, r.err
		case <-scope.ended: // never, when it is nil
			q.err = errRunEnded
		case <-ctx.Done():
			q.err = ctx.Err()
		}
		close(q.answered)
		if q.err != nil {
			return
		}
		// An answer that its push hears is used within a moment; any other waits.
		keep := time.NewTimer(remember)
		defer keep.Stop()
		select {
		case <-keep.C:
		case <-scope.ended:
		case <-q.over:
		}
	}()
	return q
}
