package session

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
)

// patient is an approver whose answers a test gives when it likes.
func patient() (a *asker, answer chan HostAnswer) {
	answer = make(chan HostAnswer)
	return &asker{ask: func(context.Context, HostQuestion) (HostAnswer, error) { return <-answer, nil }}, answer
}

// answeredOf waits for the event that tells how a question ended.
func answeredOf(t *testing.T, events *subscriber) lease.Event {
	t.Helper()
	var got lease.Event
	err := events.each(t.Context().Done(), func(e lease.Event) error {
		if e.Type != lease.EventAnswered {
			return nil
		}
		got = e
		return errors.New("found")
	})
	if err == nil {
		t.Fatal("nobody was told")
	}
	return got
}

// An answer that comes after the policy became stricter opens nothing of it: neither to
// what waits, nor to the session, nor for always, and says so.
func TestLateAnswerOpensNothing(t *testing.T) {
	off := false
	for name, tighten := range map[string]func(*testing.T, *Registry, string) error{
		"another policy": func(_ *testing.T, r *Registry, _ string) error {
			_, err := r.Patch("a", Patch{Policy: new("other")})
			return err
		},
		"no network": func(_ *testing.T, r *Registry, _ string) error {
			_, err := r.Patch("a", Patch{NetworkEnabled: &off})
			return err
		},
		"a reload that asks no more": func(t *testing.T, r *Registry, _ string) error {
			t.Helper()
			r.Push(generation(t, r))
			return nil
		},
		"a reload that denies": func(t *testing.T, r *Registry, upstream string) error {
			t.Helper()
			g := generation(t, r)
			set, err := policy.Compile(policy.Lists{Ask: rules(t, rule(upstream)), Deny: rules(t, rule(upstream))}, r.Own)
			g.Policies["agent"] = set
			r.Push(g)
			return err
		},
	} {
		for _, scope := range []Scope{ScopeOnce, ScopeSession, ScopeAlways} {
			t.Run(name+", "+string(scope), func(t *testing.T) {
				r := newRegistry(t)
				upstream := echo(t)
				a, answer := patient()
				r.Push(asking(t, r, a, rule(upstream)))
				s := open(t, r, lease.Spec{ID: "a"})
				events := r.hub.subscribe("a", streamQueue)
				defer events.cancel()
				status := make(chan int)
				go func() { status <- connect(t, "tcp", s.HTTP, upstream).status }()
				eventually(t, "asked", func() bool { return a.asked() == 1 })
				if err := tighten(t, r, upstream); err != nil {
					t.Fatal(err)
				}
				answer <- HostAnswer{Allowed: true, Scope: scope}
				if got := <-status; got != http.StatusForbidden {
					t.Errorf("the connection that waited: %d", got)
				}
				if grants, err := r.Grants("a"); err != nil || len(grants) > 0 {
					t.Errorf("granted %v, %v", grants, err)
				}
				if again := connect(t, "tcp", s.HTTP, upstream); again.status != http.StatusForbidden {
					t.Errorf("the next one: %d", again.status)
				}
				e := answeredOf(t, events)
				if len(a.always) > 0 {
					t.Errorf("written: %v", a.always)
				}
				if scope != ScopeOnce && (e.Text("scope") != "" || e.Text("said") != string(scope) || e.Text("short") == "") {
					t.Errorf("told %v", e.Fields)
				}
			})
		}
	}
}

// What is told of an answer is how far it goes, not how far it was meant to.
func TestAnswerIsToldAsItHolds(t *testing.T) {
	for name, c := range map[string]struct {
		scope   Scope
		arrange func(*testing.T, *Registry, *asker)
		want    Scope
		short   string
		grants  int
	}{
		"session": {scope: ScopeSession, want: ScopeSession, grants: 1},
		"always":  {scope: ScopeAlways, want: ScopeAlways},
		"too many grants": {ScopeSession, func(t *testing.T, r *Registry, _ *asker) {
			t.Helper()
			for range maxGrants {
				if _, err := r.Grant("a", GrantRequest{Allow: []string{"a.example"}}); err != nil {
					t.Fatal(err)
				}
			}
		}, ScopeOnce, "take one back first", maxGrants},
		"a list that cannot be written": {ScopeAlways, func(_ *testing.T, _ *Registry, a *asker) { a.failed = errors.New("disk is full") }, ScopeSession, "disk is full", 1},
		"a list that cannot be read again": {ScopeAlways, func(_ *testing.T, _ *Registry, a *asker) {
			a.reread = func(*Registry, policy.Target) error { return errors.New("line 3 is none") }
		}, ScopeSession, "line 3 is none", 1},
		"a list that is read to no effect": {ScopeAlways, func(_ *testing.T, _ *Registry, a *asker) {
			a.reread = func(*Registry, policy.Target) error { return nil }
		}, ScopeSession, "does not allow it", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			upstream := echo(t)
			a, answer := patient()
			r.Push(asking(t, r, a, rule(upstream)))
			s := open(t, r, lease.Spec{ID: "a"})
			if c.arrange != nil {
				c.arrange(t, r, a)
			}
			events := r.hub.subscribe("a", streamQueue)
			defer events.cancel()
			status := make(chan int)
			go func() { status <- connect(t, "tcp", s.HTTP, upstream).status }()
			answer <- HostAnswer{Allowed: true, Scope: c.scope, By: "ada"}
			if got := <-status; got != http.StatusOK {
				t.Errorf("the connection that waited: %d", got)
			}
			e := answeredOf(t, events)
			if e.Text("scope") != string(c.want) || !strings.Contains(e.Text("short"), c.short) || (e.Text("short") == "") != (c.short == "") || e.Text("answer") != "yes" {
				t.Errorf("told %v", e.Fields)
			}
			if grants, err := r.Grants("a"); err != nil || len(grants) != c.grants {
				t.Errorf("%d grants, %v", len(grants), err)
			}
		})
	}
}

// A list that was read again for a configuration that does not govern any more is read
// by the one that does.
func TestAlwaysOverAReload(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	a, answer := patient()
	reads := 0
	a.reread = func(r *Registry, to policy.Target) error {
		a.mu.Lock()
		reads++
		first := reads == 1
		a.mu.Unlock()
		if first {
			// Loaded meanwhile, with the list as it was.
			r.Push(asking(t, r, a, rule(upstream)))
			return errors.New("another configuration governs")
		}
		return (&asker{}).load(r, to)
	}
	r.Push(asking(t, r, a, rule(upstream)))
	s := open(t, r, lease.Spec{ID: "a"})
	events := r.hub.subscribe("a", streamQueue)
	defer events.cancel()
	status := make(chan int)
	go func() { status <- connect(t, "tcp", s.HTTP, upstream).status }()
	answer <- HostAnswer{Allowed: true, Scope: ScopeAlways}
	if got := <-status; got != http.StatusOK {
		t.Errorf("the connection that waited: %d", got)
	}
	if e := answeredOf(t, events); e.Text("scope") != string(ScopeAlways) {
		t.Errorf("told %v", e.Fields)
	}
	other := open(t, r, lease.Spec{ID: "b"})
	if tun := connect(t, "tcp", other.HTTP, upstream); tun.status != http.StatusOK || a.asked() != 1 {
		t.Errorf("another session: %d after %d questions", tun.status, a.asked())
	}
	if n := len(slices.Compact(a.always)); len(a.always) != 2 || n != 1 {
		t.Errorf("written: %v", a.always)
	}
}
