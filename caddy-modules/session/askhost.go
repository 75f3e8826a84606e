package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
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
	wait := cmp.Or(approvals.Wait, askWait)
	// The question is the session's, not this connection's: others may wait for it too.
	answer, err := s.asks.ask(ctx, s.ctx, key, wait, func(ctx context.Context) (HostAnswer, error) {
		return s.put(ctx, v, d, p, wait)
	})
	switch {
	case err == nil && answer.Allowed:
		return s.approved(t, answer), nil
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

// approved is the decision that stands for a yes.
func (s *session) approved(t policy.Target, a HostAnswer) policy.Decision {
	set, err := s.policy().Approve(t, policy.Origin{File: approvalName(a.By)})
	if err != nil {
		return policy.Refuse(t, policy.AskRefused, err.Error())
	}
	return set.Decide(t)
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
	if err == nil {
		err = s.heed(q, &answer) //nolint:contextcheck // what was decided outlives who waits for it
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	s.tellAnswered(q, answer, err)
	return answer, err
}

// heed does what an answer says of the session and of its policy.
func (s *session) heed(q HostQuestion, a *HostAnswer) error {
	t := q.Decision.Target()
	a.Scope = cmp.Or(a.Scope, ScopeOnce)
	switch {
	case !slices.Contains(q.Scopes, a.Scope):
		return fmt.Errorf("its scope %q was not offered", a.Scope)
	case a.Scope == ScopeOnce:
		return nil
	case !a.Allowed:
		s.asks.refuse(keyOf(t), noes(*a))
		return nil
	}
	grant, err := s.registry.grant(s.spec.ID, s, GrantRequest{
		Allow: []string{fmt.Sprintf("%s %d", t.Host(), t.Port())}, By: a.By, Reason: "approved",
	})
	if err != nil {
		// It has ended, or has too many grants: the yes holds for what waits all the same.
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "approved for the session, and it holds once", slog.String("target", t.String()), slog.Any("error", err))
	}
	if a.Scope == ScopeAlways {
		s.always(q, a.By, grant.ID)
	}
	return nil
}

// always has the target written to the list of the policy, as the generation has it
// that governs by now. The session's grant bridges the time until the list is loaded, and stays
// where that fails.
func (s *session) always(q HostQuestion, by, grant string) {
	t := q.Decision.Target()
	failed := func(err error) {
		s.log.LogAttrs(s.ctx, slog.LevelError, "approved for always, and it holds for this session only", slog.String("target", t.String()),
			slog.String("policy", q.Policy), slog.String("by", by), slog.Any("error", err))
	}
	err := errors.New("the policy has no list for that any more")
	if gen := s.view.Load().gen; gen != nil && gen.Approvals.Always[q.Policy] != nil {
		err = gen.Approvals.Always[q.Policy](t, by, s.spec.ID, func(err error) {
			if err != nil {
				failed(err)
				return
			}
			if grant != "" {
				_ = s.registry.revokeGrant(s, grant) // the session may have ended
			}
		})
	}
	if err != nil {
		failed(err)
	}
}

func (s *session) tellAsked(q HostQuestion) {
	s.registry.Publish(lease.Event{Type: lease.EventAsked, Session: s.spec.ID, Fields: map[string]any{
		"id": q.ID, "target": q.Decision.Target().String(), "proto": string(q.Proto), "policy": q.Policy, "reason": q.Decision.Reason(),
		"rule": q.Decision.Rule, "source": q.Decision.Source, "scopes": q.Scopes, "waitsUntil": q.Deadline,
	}})
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "asked", slog.String("id", q.ID), slog.String("target", q.Decision.Target().String()),
		slog.String("proto", string(q.Proto)), slog.String("policy", q.Policy), slog.String("rule", q.Decision.Rule), slog.String("source", q.Decision.Source))
}

// tellAnswered tells how a question ended.
func (s *session) tellAnswered(q HostQuestion, a HostAnswer, err error) {
	how := "no"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		how = "timeout"
	case errors.Is(err, context.Canceled):
		how = "withdrawn" // by the clients, or with the session
	case err != nil:
		how = "none"
	case a.Allowed:
		how = "yes"
	}
	fields := map[string]any{"id": q.ID, "target": q.Decision.Target().String(), "answer": how, "seconds": time.Since(q.Time).Seconds()}
	attrs := []slog.Attr{slog.String("id", q.ID), slog.String("target", q.Decision.Target().String()), slog.String("answer", how)}
	add := func(name, value string) {
		if value != "" {
			fields[name] = value
			attrs = append(attrs, slog.String(name, value))
		}
	}
	if err == nil {
		add("scope", string(a.Scope))
		add("by", a.By)
		add("reason", a.Reason)
	} else if how == "none" {
		add("reason", err.Error())
	}
	s.registry.Publish(lease.Event{Type: lease.EventAnswered, Session: s.spec.ID, Fields: fields})
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "answered", attrs...)
}
