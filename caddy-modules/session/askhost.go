package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
)

// ask has an approver decide about a target that the policy asks about first, and
// waits for the answer. Any other refusal it gives back as it is. A decision that
// allows is for the one connection that asked; whatever went further is in the
// session's policy by then, which the gate asks again. The error is that ctx ended,
// as whoever asked has gone.
//
// Nothing has been looked up for the target, and nothing is before the yes.
func (s *session) ask(ctx context.Context, d policy.Decision, p proxy.Proto) (policy.Decision, error) {
	if d.Allowed || d.Code != policy.AskFirst {
		return d, nil
	}
	t := d.Target()
	key := keyOf(t)
	if reason, ok := s.asks.refusal(key); ok {
		return policy.Refuse(t, policy.AskRefused, reason+", for the rest of this session"), nil
	}
	v := s.view.Load()
	if v.gen == nil || v.gen.Approvals.Asker == nil {
		return policy.Refuse(t, policy.AskNobody, "the policy asks an approver first, and none is configured"), nil
	}
	approvals := v.gen.Approvals
	if !approvals.Asker.Connected() {
		return policy.Refuse(t, policy.AskNobody, "the policy asks an approver first, and none is connected"), nil
	}
	wait := approvals.Wait
	if wait <= 0 {
		wait = AskWait
	}
	// The question is the session's, not this connection's: others may wait for it too.
	answer, err := s.asks.ask(ctx, s.ctx, key, wait, func(ctx context.Context) (HostAnswer, error) {
		return s.put(ctx, v, d, p, wait)
	})
	switch {
	case err == nil && answer.Allowed:
		return s.approved(ctx, t, answer), nil
	case err == nil:
		return policy.Refuse(t, policy.AskRefused, noes(answer)), nil
	case ctx.Err() != nil:
		return d, context.Cause(ctx)
	case errors.Is(err, errManyAsks):
		return policy.Refuse(t, policy.AskNobody, fmt.Sprintf("%d other questions of this session wait for an approver already", maxAsks)), nil
	case errors.Is(err, context.DeadlineExceeded):
		return policy.Refuse(t, policy.AskTimeout, fmt.Sprintf("no approver answered within %s; the next attempt asks again", wait)), nil
	default:
		return policy.Refuse(t, policy.AskNobody, "the approver gave no answer: "+err.Error()), nil
	}
}

// approved is what the policy that governs by now makes of a yes. It may have come to
// deny the target, or to ask about it no more: then the yes is worth nothing.
func (s *session) approved(ctx context.Context, t policy.Target, a HostAnswer) policy.Decision {
	ctx = policy.WithApproval(ctx, t, policy.Origin{File: approvalName(a.By)})
	return s.policy().Approved(ctx).Decide(t)
}

// approvalName is the source of what an approver has opened.
func approvalName(by string) string {
	if by == "" {
		return "approval"
	}
	return "approval by " + by
}

func noes(a HostAnswer) string {
	text := "an approver said no"
	if a.By != "" {
		text = a.By + " said no"
	}
	if a.Reason != "" {
		text += " (" + a.Reason + ")"
	}
	return text
}

// put asks, tells of it, and does what the answer says beyond the connections that
// wait: they may have gone, and whoever answered was told that it counts.
func (s *session) put(ctx context.Context, v *view, d policy.Decision, p proxy.Proto, wait time.Duration) (HostAnswer, error) {
	approvals := v.gen.Approvals
	q := HostQuestion{
		ID: rand.Text(), Time: time.Now(), Session: s.spec.ID, Agent: s.spec.Agent, Workspace: s.spec.Workspace,
		Policy: v.policy, Proto: p, Decision: d, Scopes: []Scope{ScopeOnce, ScopeSession},
	}
	q.Deadline = q.Time.Add(wait)
	if approvals.Always[v.policy] != nil {
		q.Scopes = append(q.Scopes, ScopeAlways)
	}
	s.tellAsked(q)
	answer, err := approvals.Asker.AskHost(ctx, q)
	answer.Scope = cmp.Or(answer.Scope, ScopeOnce)
	if err == nil && !slices.Contains(q.Scopes, answer.Scope) {
		err = fmt.Errorf("its scope %q was not offered", answer.Scope)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		s.tellAnswered(q, answer, reach{}, err)
		return answer, err
	}
	s.heed(q, answer) //nolint:contextcheck // what was decided outlives who waits for it
	return answer, nil
}
