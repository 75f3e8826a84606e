package session

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
)

// Bounds of grants. A week is longer than a session should live on what somebody
// allowed in passing.
const (
	maxGrants     = 256 // at a time, of one session
	maxGrantRules = 64
	maxGrantFor   = 7 * 24 * time.Hour
	maxGrantText  = 256 // bytes of who and why
)

// GrantRequest opens more to a session for a while.
type GrantRequest struct {
	Allow   []string `json:"allow"`             // rules, as in an allowlist
	Seconds int      `json:"seconds,omitempty"` // 0 is until the session ends
	By      string   `json:"by,omitempty"`      // who allowed it, for people
	Reason  string   `json:"reason,omitempty"`
}

// Grant is what was granted.
type Grant struct {
	ID      string    `json:"id"`
	Allow   []string  `json:"allow"`
	Expires time.Time `json:"expires,omitzero"`
	By      string    `json:"by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// Grant adds rules to a session until they run out or it ends; reloads do not end
// them. As every rule that allows they open nothing that is denied. The error is a
// *lease.Error.
func (r *Registry) Grant(id string, q GrantRequest) (Grant, error) {
	s := r.find(id)
	if s == nil {
		return Grant{}, noSession(id)
	}
	return r.grant(s, q, func() error { return nil })
}

// grant is Grant to a session, unless may says no. It is asked when nothing about the
// session can change any more until the grant holds.
func (r *Registry) grant(s *session, q GrantRequest, may func() error) (Grant, error) {
	if err := q.validate(); err != nil {
		return Grant{}, &lease.Error{Code: lease.CodeBadRequest, Message: err.Error()}
	}
	given := &grant{Grant: Grant{By: q.By, Reason: q.Reason}}
	err := r.change(s, func(t *terms) error {
		if err := may(); err != nil {
			return err
		}
		if len(t.grants) >= maxGrants {
			return &lease.Error{Code: lease.CodeConflict, Message: fmt.Sprintf("session %q has %d grants; take one back first", s.spec.ID, len(t.grants))}
		}
		t.granted++
		given.ID = "g" + strconv.Itoa(t.granted)
		origin := policy.Origin{File: "grant " + given.ID}
		if q.By != "" {
			origin.File += " (" + q.By + ")"
		}
		for i, line := range q.Allow {
			rule, err := policy.ParseRule(line, origin)
			if err != nil {
				return &lease.Error{Code: lease.CodeBadRule, Message: fmt.Sprintf("allow[%d]: %v", i, err)}
			}
			given.rules = append(given.rules, rule)
			given.Allow = append(given.Allow, rule.String())
		}
		if q.Seconds > 0 {
			r.limit(s, given, time.Duration(q.Seconds)*time.Second)
		}
		t.grants = append(slices.Clip(t.grants), given)
		return nil
	})
	if err != nil {
		given.stop()
		return Grant{}, err
	}
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "granted", slog.String("grant", given.ID), slog.Any("allow", given.Allow),
		slog.String("by", q.By), slog.String("reason", q.Reason), slog.Int("seconds", q.Seconds))
	return given.Grant, nil
}

func (q *GrantRequest) validate() error {
	switch {
	case len(q.Allow) == 0:
		return errors.New("validate allow: no rule is given")
	case len(q.Allow) > maxGrantRules:
		return fmt.Errorf("validate allow: %d rules, at most %d", len(q.Allow), maxGrantRules)
	case q.Seconds < 0 || q.Seconds > int(maxGrantFor/time.Second):
		return fmt.Errorf("validate seconds: %d is not within 0 to %d", q.Seconds, int(maxGrantFor/time.Second))
	}
	for _, f := range []struct{ name, text string }{{"by", q.By}, {"reason", q.Reason}} {
		if len(f.text) > maxGrantText || strings.ContainsFunc(f.text, unicode.IsControl) {
			return fmt.Errorf("validate %s: want at most %d bytes without control characters", f.name, maxGrantText)
		}
	}
	return nil
}

// Revoke takes a grant back, and cuts what it had opened. The error is a *lease.Error.
func (r *Registry) Revoke(id, grant string) error {
	s := r.find(id)
	if s == nil {
		return noSession(id)
	}
	return r.revokeGrant(s, grant)
}

// revokeGrant takes back a grant of this session and not of the next one with its id.
func (r *Registry) revokeGrant(s *session, id string) error {
	err := r.change(s, func(t *terms) error {
		i := slices.IndexFunc(t.grants, func(g *grant) bool { return g.ID == id })
		if i < 0 {
			return noGrant(s.spec.ID, id)
		}
		t.grants[i].stop()
		t.grants = slices.Delete(slices.Clone(t.grants), i, i+1)
		return nil
	})
	if err == nil {
		s.log.LogAttrs(s.ctx, slog.LevelInfo, "grant ended", slog.String("grant", id))
	}
	return err
}

// Grants returns what is granted to a session at the moment, oldest first.
func (r *Registry) Grants(id string) ([]Grant, error) {
	s := r.find(id)
	if s == nil {
		return nil, noSession(id)
	}
	return s.judging().terms.list(), nil
}

func (t *terms) list() []Grant {
	all := make([]Grant, 0, len(t.grants))
	for _, g := range t.grants {
		all = append(all, g.Grant)
	}
	return all
}
