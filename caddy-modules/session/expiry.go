package session

import (
	"slices"
	"time"

	"postern/caddy-modules/policy"
)

// expiryCheck is how often it is looked whether a grant has run out by the wall clock:
// the open tunnels of one that ran out while the machine was suspended are cut that
// long after it wakes. New connections ask for themselves.
const expiryCheck = 10 * time.Second

// grant is what was granted, and its rules.
type grant struct {
	Grant
	rules []policy.Rule
	timer *time.Timer // nil: until the session ends; guarded by Registry.mu
}

// stop has the time of a grant pass without consequence.
func (g *grant) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// over reports whether the time of a grant has come, by either clock: the monotonic one
// stands still while the machine is suspended, and the other may be set back.
func over(now, expires time.Time) bool {
	return !expires.IsZero() && (!now.Before(expires) || !now.Round(0).Before(expires.Round(0)))
}

// limit has a grant run out. r.mu is held.
func (r *Registry) limit(s *session, g *grant, in time.Duration) {
	g.Expires = time.Now().Add(in)
	g.timer = time.AfterFunc(min(in, expiryCheck), func() { r.expire(s, g) })
}

// expire takes a grant back that has run out, and looks again later where it has not.
func (r *Registry) expire(s *session, g *grant) {
	if over(r.now(), g.Expires) {
		_ = r.revokeGrant(s, g.ID) // it may have been taken back already
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.ctx.Err() == nil && slices.Contains(s.terms.Load().grants, g) {
		g.timer.Reset(max(0, min(time.Until(g.Expires), expiryCheck)))
	}
}

// soonest is when the first of some grants runs out, zero for none.
func soonest(grants []*grant) (first time.Time) {
	for _, g := range grants {
		if !g.Expires.IsZero() && (first.IsZero() || g.Expires.Before(first)) {
			first = g.Expires
		}
	}
	return first
}

// judging is the view by which a new connection is judged: that of the session, without
// the grants that have run out and were not taken back yet.
func (s *session) judging() *view {
	v := s.view.Load()
	if v.until.IsZero() {
		return v
	}
	now := s.registry.now()
	if !over(now, v.until) {
		return v
	}
	t := *v.terms
	t.grants = slices.DeleteFunc(slices.Clone(t.grants), func(g *grant) bool { return over(now, g.Expires) })
	return look(v.gen, &t)
}
