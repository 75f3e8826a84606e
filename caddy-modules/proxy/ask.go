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

// heed has the policy of now rule again, which may allow the target by itself, and deny
// it whatever the approver said. Only where it would still ask does the yes count, and
// that for this connection. An answer that went further is in the policy by then: taking
// that back there takes back what it had opened, this connection too.
func (f *flow) heed(ru *ruling, yes *approved) error {
	*ru = f.s.Gate.rule(ru.target)
	if f.asks(ru) {
		f.yes = yes
		ru.approved = yes
		ru.set = ru.set.Approved(yes.in(f.s.ctx))
		ru.decision = ru.set.Decide(ru.target)
	}
	if !ru.decision.Allowed {
		return &Denied{Target: ru.target, Decision: ru.decision}
	}
	return nil
}

// ask holds the connection until somebody has answered, and rules by the answer. Nothing
// was looked up so far. A client that leaves meanwhile takes its question back.
func (f *flow) ask(ru *ruling, proto Proto) error {
	t := ru.target
	if f.yes != nil && f.yes.target == t {
		return f.heed(ru, f.yes) // to the request before on the same connection
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
		answer, err = f.s.Gate.Ask(ctx, ru.decision, proto)
		f.stopReading()
	}()
	if f.clientLeaves() {
		cancel()
	}
	<-done
	_ = f.client.SetReadDeadline(time.Time{})
	switch {
	case f.isEnded():
		return errEnded
	case errors.Is(err, context.DeadlineExceeded):
		answer = policy.Refuse(t, policy.AskTimeout, "nobody answered in time whether it may be reached")
	case errors.Is(err, context.Canceled):
		answer = policy.Refuse(t, policy.AskTimeout, "the client left before anybody had answered")
	case err != nil:
		answer = policy.Refuse(t, policy.AskNobody, "nobody could be asked whether it may be reached: "+err.Error())
	case answer.Allowed:
		return f.heed(ru, &approved{t, policy.Origin{File: answer.Source}})
	}
	return &Denied{Target: t, Decision: answer}
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
