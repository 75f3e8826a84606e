package proxy

import (
	"context"
	"errors"
	"time"

	"postern/caddy-modules/policy"
)

// askMost bounds a question in any case. Whoever asks has a limit of his own,
// shorter than the patience of clients.
const askMost = 10 * time.Minute

// approved is an approver's yes.
type approved struct {
	target policy.Target
	by     policy.Origin
}

// in has what is done under ctx judged with the yes.
func (a *approved) in(ctx context.Context) context.Context {
	return policy.WithApproval(ctx, a.target, a.by)
}

// apply judges by the policy of now: it may allow the target by itself, and deny
// it whatever the approver said.
func (a *approved) apply(ctx context.Context, set *policy.Set) (context.Context, *policy.Set, error) {
	ctx = a.in(ctx)
	set = set.Approved(ctx)
	if d := set.Decide(a.target); !d.Allowed {
		return nil, nil, &Denied{Target: a.target, Decision: d}
	}
	return ctx, set, nil
}

// ask holds the connection until somebody has answered, and gives the yes. Nothing
// was looked up so far. A client that leaves meanwhile takes its question back.
func (f *flow) ask(t policy.Target, d policy.Decision, proto Proto) (*approved, error) {
	if f.yes != nil && f.yes.target == t {
		return f.yes, nil // to the request before on the same connection
	}
	ctx, cancel := context.WithTimeout(f.s.ctx, askMost)
	defer cancel()
	f.watch.stage(askMost+farewell, func() { f.abort(CauseError) })
	var answer policy.Decision
	var err error
	done := make(chan struct{})
	// In a goroutine of its own, as the dial, and so that this one can see the
	// client leave.
	go func() {
		defer close(done)
		answer, err = f.s.Gate.Ask(ctx, d, proto)
		f.stopReading()
	}()
	if f.clientLeaves() {
		cancel()
	}
	<-done
	_ = f.client.SetReadDeadline(time.Time{})
	switch {
	case f.isEnded():
		return nil, errEnded
	case errors.Is(err, context.DeadlineExceeded):
		answer = policy.Refuse(t, policy.AskTimeout, "nobody answered in time whether it may be reached")
	case errors.Is(err, context.Canceled):
		answer = policy.Refuse(t, policy.AskTimeout, "the client left before anybody had answered")
	case err != nil:
		answer = policy.Refuse(t, policy.AskNobody, "nobody could be asked whether it may be reached: "+err.Error())
	case answer.Allowed:
		f.yes = &approved{t, policy.Origin{File: answer.Source}}
		return f.yes, nil
	}
	return nil, &Denied{Target: t, Decision: answer}
}

// clientLeaves waits until the client has closed its side, which is true, or
// reading is stopped. What the client sends is left where it is.
func (f *flow) clientLeaves() bool {
	raw := rawConn(f.client)
	if raw == nil {
		return false
	}
	left := false
	err := raw.Read(func(fd uintptr) bool {
		left = hungUp(int(fd))
		return left
	})
	return err == nil && left
}
