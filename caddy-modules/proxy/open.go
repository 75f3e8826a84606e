package proxy

import (
	"context"
	"net"
	"time"

	"postern/caddy-modules/policy"
)

// ruling is what is decided about a target, once: caps, the question to an approver,
// the lookup, the dial and the trail go by it. When a socket is about to connect, and
// when it has, the policy of that moment is asked again.
type ruling struct {
	target policy.Target
	// local answers the target in process, and nothing is asked then. nil for others.
	local    func(context.Context) (net.Conn, error)
	set      *policy.Set // that decided
	decision policy.Decision
	approved *approved // by whom, when it is for this connection alone
}

// localDecision stands in a record for a target that no policy judged.
var localDecision = policy.Decision{Allowed: true, Code: policy.Allow, Source: "built-in"}

const unknownFake = "no name of this session stands behind the address; look the name up again and connect to what the answer says"

// rule decides about a target. A made-up address that stands for no name leads
// nowhere, whatever the lists say of its range: it was somebody else's, or is of the
// time before a restart.
func (f *flow) rule(t policy.Target) ruling {
	if f.s.Local != nil {
		if dial, ok := f.s.Local(t); ok {
			return ruling{target: t, local: dial, decision: localDecision}
		}
	}
	if a, literal := t.Host().Addr(); literal && f.s.Made != nil && f.s.Made(a) {
		return ruling{target: t, decision: policy.Refuse(t, policy.FakeUnknown, unknownFake)}
	}
	return f.s.Gate.rule(t)
}

// asks says that an approver has the last word on what is ruled.
func (f *flow) asks(ru *ruling) bool {
	return ru.decision.Code == policy.AskFirst && !ru.decision.Allowed && f.s.Gate.Ask != nil
}

// refuse gives the refusal of what is refused, with nobody left to ask.
func (f *flow) refuse(ru *ruling) error {
	if ru.decision.Allowed || f.asks(ru) {
		return nil
	}
	return &Denied{Target: ru.target, Decision: ru.decision}
}

// open connects to a target, in process or through the gate. The route is
// attached: from here on Recheck and Close reach it.
func (f *flow) open(ru *ruling, proto Proto) (*route, error) {
	limit := f.s.limits.Dial
	// The dial has its own limit; this one only covers a dial that ignores it.
	f.watch.stage(limit+farewell, func() { f.abort(CauseError) })
	r := &route{target: ru.target, begun: time.Now()}
	if ru.local != nil {
		ctx, cancel := context.WithTimeout(f.s.ctx, limit)
		defer cancel()
		conn, err := ru.local(ctx)
		if err != nil {
			return nil, asDialError(ctx, ru.target, err)
		}
		r.conn, r.local, r.decision = conn, true, ru.decision
		if err := f.attach(r, nil); err != nil {
			return nil, err
		}
		return r, nil
	}
	if err := f.refuse(ru); err != nil {
		return nil, err
	}
	ctx := f.s.ctx
	if f.asks(ru) {
		if err := f.ask(ru, proto); err != nil {
			return nil, err
		}
		f.watch.stage(limit+farewell, func() { f.abort(CauseError) })
		r.begun = time.Now()
	}
	if ru.approved != nil {
		r.approved = ru.approved
		ctx = ru.approved.in(ctx)
	}
	taken, err := f.take(ru.target, proto)
	if err != nil {
		return nil, err
	}
	// In a goroutine of its own: lookup and dial run deep, and a stack that has
	// grown for them would be held for the life of the tunnel.
	done := make(chan error, 1)
	go func() {
		conn, opened, err := f.s.Gate.open(ctx, ru, limit)
		r.conn, r.addr, r.decision, r.release = conn, opened.Addr, opened.Decision, opened.Release
		r.parent = opened.Parent
		r.resolved, r.lookup, r.connect = opened.Resolved, opened.Lookup, opened.Connect
		done <- err
	}()
	if err = <-done; err == nil {
		err = f.attach(r, ru.set)
	}
	if err != nil {
		if taken { // what came to nothing is no tunnel, however long its client is told so
			f.untake()
		}
		return nil, err
	}
	return r, nil
}

// attach makes r the flow's route. The policy may have changed since asked
// was, with Recheck already past this flow; then it is asked
// once more, now that Recheck would find it.
func (f *flow) attach(r *route, asked *policy.Set) error {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		r.close()
		return errEnded
	}
	f.route = r
	f.mu.Unlock()
	f.watch.free.Store(r.local)
	now := f.s.Gate.policy()
	if now == asked {
		return nil
	}
	if d, ok := r.judge(now); !ok {
		f.drop()
		return &Denied{Target: r.target, Decision: d}
	}
	return nil
}
