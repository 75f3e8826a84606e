package session

import (
	"cmp"
	"errors"
	"fmt"

	"postern/caddy-modules/policy"
)

// reach is how far an answer goes in truth, and why less far than it says. No scope is
// nowhere: the yes came too late for the policy that governs.
type reach struct {
	scope Scope
	short error
}

// maxAlwaysTries bounds how often a list is read again for one answer, each time by
// another configuration that took the place of the one before.
const maxAlwaysTries = 3

// heed does what an answer says of the session and of its policy, beyond the connections
// that wait, and tells how far it goes when that is known.
func (s *session) heed(q HostQuestion, a HostAnswer) {
	t := q.Decision.Target()
	if a.Scope == ScopeOnce || !a.Allowed {
		if a.Scope != ScopeOnce {
			s.asks.refuse(keyOf(t), noes(a))
		}
		s.tellAnswered(q, a, reach{scope: a.Scope}, nil)
		return
	}
	grant, got := s.keep(q, a)
	if a.Scope != ScopeAlways || got.scope == "" {
		s.tellAnswered(q, a, got, nil)
		return
	}
	s.always(q, a, func(err error) {
		switch {
		case err != nil:
			got.short = cmp.Or(got.short, err) // that it holds once says more
		default:
			got = reach{scope: ScopeAlways}
			if grant != "" {
				_ = s.registry.revokeGrant(s, grant) // the session may have ended
			}
		}
		s.tellAnswered(q, a, got, nil)
	})
}

// lateError says that the policy which governs by now leaves nothing to an approver.
type lateError struct{ decision policy.Decision }

func (e *lateError) Error() string { return "the policy has changed meanwhile: " + e.decision.Reason() }

// approvable is what an approver's yes can open under a set: what it asks about, and
// what it allows by itself.
func approvable(set *policy.Set, t policy.Target) error {
	if d := set.Decide(t); d.Code != policy.AskFirst && d.Code != policy.Allow {
		return &lateError{d}
	}
	return nil
}

// keep grants an approved target to the session, judged by the policy that governs in
// the moment of granting.
func (s *session) keep(q HostQuestion, a HostAnswer) (grant string, got reach) {
	t := q.Decision.Target()
	given, err := s.registry.grant(s, GrantRequest{Allow: []string{t.Rule()}, By: a.By, Reason: "approved"},
		func() error { return approvable(s.policy(), t) })
	if _, late := errors.AsType[*lateError](err); late {
		return "", reach{short: err}
	}
	if err != nil {
		// It has ended, or has too many grants: the yes holds for what waits all the same.
		return "", reach{ScopeOnce, err}
	}
	return given.ID, reach{scope: ScopeSession}
}

// always has an approved target written to the list of the policy that was asked for,
// and loaded, by the configuration that governs by now. done is called once, with nil
// when the target is allowed without the session's grant, which bridges the time until
// then and stays where it comes to nothing.
func (s *session) always(q HostQuestion, a HostAnswer, done func(error)) {
	t := q.Decision.Target()
	if now := s.view.Load().policy; now != q.Policy {
		done(fmt.Errorf("the session has the policy %s by now, and it was asked for %s", now, q.Policy))
		return
	}
	var try func(left int)
	try = func(left int) {
		g := s.registry.governing.Load()
		if g == nil || g.Policies[q.Policy] == nil || g.Approvals.Always[q.Policy] == nil {
			done(errors.New("the policy has no list for that any more"))
			return
		}
		if err := approvable(g.Policies[q.Policy], t); err != nil {
			done(err)
			return
		}
		err := g.Approvals.Always[q.Policy](t, a.By, s.spec.ID, func(err error) {
			switch now := s.registry.governing.Load(); {
			case now != nil && now.Policies[q.Policy] != nil && now.Policies[q.Policy].Decide(t).Allowed:
				done(nil)
			case left > 1:
				try(left - 1) // another configuration governs, which read the list before
			case err == nil:
				done(errors.New("the list has been read again, and the policy does not allow it"))
			default:
				done(err)
			}
		})
		if err != nil {
			done(err)
		}
	}
	try(maxAlwaysTries)
}
