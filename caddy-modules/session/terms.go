package session

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
)

// terms are what of a session can change while it lives. They are replaced as a whole,
// by whoever holds the registry's locks, and read by anybody.
type terms struct {
	spec   lease.Spec    // as it holds now: session.spec is as it was opened
	rules  []policy.Rule // of its allowlist
	grants []*grant      // oldest first
	caps   Caps          // of its own

	granted int // grants ever, which numbers them
}

// added are the rules that a session has beside its policy.
func (t *terms) added() []policy.Rule {
	rules := t.rules
	for _, g := range t.grants {
		rules = append(slices.Clip(rules), g.rules...)
	}
	return rules
}

// stop stops the timers of grants: the session has ended.
func (t *terms) stop() {
	for _, g := range t.grants {
		g.stop()
	}
}

// Patch changes an open session. What is nil stays as it is.
type Patch struct {
	Policy          *string   `json:"policy,omitempty"` // "" is the default one
	NetworkEnabled  *bool     `json:"networkEnabled,omitempty"`
	EgressAllowlist *[]string `json:"egressAllowlist,omitempty"`
	Limits          *Caps     `json:"limits,omitempty"` // beside those of the configuration, which stay
}

// Patch changes a session, all of it or nothing: no connection is judged by half of
// the change. Tunnels that are refused from then on are cut when it returns, and a
// launcher knows what to lend to the next appliance. The error is a *lease.Error.
func (r *Registry) Patch(id string, p Patch) (Info, error) {
	s := r.find(id)
	if s == nil {
		return Info{}, noSession(id)
	}
	err := r.change(s, func(t *terms) error {
		if p.Policy != nil {
			t.spec.Policy = *p.Policy
		}
		if p.NetworkEnabled != nil {
			on := *p.NetworkEnabled
			t.spec.NetworkEnabled = &on
		}
		if p.EgressAllowlist != nil {
			t.spec.EgressAllowlist = slices.Clone(*p.EgressAllowlist)
		}
		if p.Limits != nil {
			t.caps = *p.Limits
		}
		if err := errors.Join(t.spec.Validate(), t.caps.Validate()); err != nil {
			return &lease.Error{Code: lease.CodeBadRequest, Message: err.Error()}
		}
		if p.EgressAllowlist != nil && s.kind == kindLease {
			if err := lease.Resumable(t.spec); err != nil {
				return &lease.Error{Code: lease.CodeBadRequest, Message: err.Error()}
			}
		}
		var err error
		t.rules, err = parseRules(t.spec.EgressAllowlist)
		return err
	})
	if err != nil {
		return Info{}, err
	}
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "session changed", slog.String("policy", s.view.Load().policy),
		slog.Bool("network", s.terms.Load().spec.Network()), slog.Int("rules", len(s.terms.Load().rules)))
	if err := s.handOver(); err != nil {
		// It might lend the session again, to this appliance or the next one, as it was.
		_ = r.Close(id) // it may have ended by itself
		return Info{}, unavailable(fmt.Errorf("the session has been ended, for its launcher does not take the change: %w", err))
	}
	return s.info(), nil
}

// change replaces the terms of an open session by what edit makes of a copy, and holds
// it to them: new connections at once, open ones before it returns. An error of edit
// changes nothing.
func (r *Registry) change(s *session, edit func(*terms) error) error {
	// As with a reload: of two changes the later one is not overtaken by what the
	// earlier one does to tunnels and limits.
	r.reload.Lock()
	defer r.reload.Unlock()
	if err := r.replace(s, edit); err != nil {
		return err
	}
	s.front.update()
	s.tellRefusing()
	s.front.recheck()
	v := s.view.Load()
	fields := map[string]any{"policy": v.policy, "changed": true}
	if v.refusing != "" {
		fields["refusing"] = v.refusing
	}
	r.Publish(lease.Event{Type: lease.EventPolicy, Session: s.spec.ID, Fields: fields})
	return nil
}

func (r *Registry) replace(s *session, edit func(*terms) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.isOpen() || r.sessions[s.spec.ID] != s {
		return noSession(s.spec.ID)
	}
	next := *s.terms.Load()
	if err := edit(&next); err != nil {
		return err
	}
	g := r.governing.Load()
	if g == nil {
		return &lease.Error{Code: lease.CodeNotConfigured, Message: "no configuration governs this appliance; try again when one does"}
	}
	v := look(g, &next)
	if before := s.terms.Load(); next.spec.Policy != before.spec.Policy && g.Policies[v.policy] == nil {
		return &lease.Error{Code: lease.CodeUnknownPolicy, Message: unknownPolicy(g, v.policy)}
	}
	if v.unfit != nil {
		return &lease.Error{Code: lease.CodeBadRule, Message: v.unfit.Error()}
	}
	s.terms.Store(&next)
	s.adopt(v)
	return nil
}

// noGrant words what a grant that is not there means.
func noGrant(id, grant string) *lease.Error {
	return &lease.Error{Code: lease.CodeNotFound, Message: fmt.Sprintf("session %q has no grant %q; it may have run out", id, grant)}
}
