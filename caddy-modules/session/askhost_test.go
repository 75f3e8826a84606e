package session

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
)

// asker is an approver that tests speak for.
type asker struct {
	mu     sync.Mutex
	away   bool
	heard  []HostQuestion
	ask    func(ctx context.Context, q HostQuestion) (HostAnswer, error)
	always []string
	failed error
	reread func(*Registry, policy.Target) error // nil: the list is in force
}

// load has the generation that governs allow a target, as a list that is read again does.
func (a *asker) load(r *Registry, t policy.Target) error {
	if a.reread != nil {
		return a.reread(r, t)
	}
	before := r.governing.Load()
	next := *before
	next.Policies = maps.Clone(before.Policies)
	set, err := next.Policies["agent"].Approve(t, policy.Origin{File: "approved.list"})
	if err != nil {
		return err
	}
	next.Policies["agent"] = set
	if _, governs := r.Replace(before, &next); !governs {
		return errors.New("it does not govern")
	}
	return nil
}

func (a *asker) Connected() bool { return !a.away }

func (a *asker) AskHost(ctx context.Context, q HostQuestion) (HostAnswer, error) {
	a.mu.Lock()
	a.heard = append(a.heard, q)
	a.mu.Unlock()
	return a.ask(ctx, q)
}

func (a *asker) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.heard)
}

func says(answer HostAnswer) func(context.Context, HostQuestion) (HostAnswer, error) {
	return func(context.Context, HostQuestion) (HostAnswer, error) { return answer, nil }
}

// asking is a generation whose policy asks about the lines first.
func asking(tb testing.TB, r *Registry, a *asker, lines ...string) *Generation {
	tb.Helper()
	g := generation(tb, r)
	set, err := policy.Compile(policy.Lists{Ask: rules(tb, lines...)}, r.Own)
	if err != nil {
		tb.Fatal(err)
	}
	g.Policies["agent"] = set
	g.Approvals.Asker = a
	g.Approvals.Always = map[string]func(policy.Target, string, string, func(error)) error{
		"agent": func(t policy.Target, by, session string, loaded func(error)) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.always = append(a.always, t.String()+" "+by+" "+session)
			if a.failed == nil {
				go func() { loaded(a.load(r, t)) }()
			}
			return a.failed
		},
	}
	return g
}

// What each answer opens: the connection that asked, and the next ones.
func TestAskHost(t *testing.T) {
	for name, c := range map[string]struct {
		answer        HostAnswer
		first, second int
		questions     int
		code, reason  string // of the refusal
		always        bool
	}{
		"once":                {HostAnswer{Allowed: true, By: "ada"}, 200, 200, 2, "", "", false},
		"once by name":        {HostAnswer{Allowed: true, Scope: ScopeOnce}, 200, 200, 2, "", "", false},
		"session":             {HostAnswer{Allowed: true, By: "ada", Scope: ScopeSession}, 200, 200, 1, "", "", false},
		"always":              {HostAnswer{Allowed: true, By: "ada", Scope: ScopeAlways}, 200, 200, 1, "", "", true},
		"no":                  {HostAnswer{By: "ada", Reason: "not today"}, 403, 403, 2, "ask_refused", "ada said no (not today)", false},
		"no, for the session": {HostAnswer{By: "ada", Scope: ScopeSession}, 403, 403, 1, "ask_refused", "ada said no", false},
		"no scope of ours":    {HostAnswer{Allowed: true, Scope: "forever"}, 403, 403, 2, "ask_nobody", "was not offered", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			upstream := echo(t)
			a := &asker{ask: says(c.answer), failed: errors.New("a list that cannot be written")}
			r.Push(asking(t, r, a, rule(upstream)))
			events := r.hub.subscribe("", streamQueue)
			defer events.cancel()
			s := open(t, r, lease.Spec{ID: "a", Agent: "claude", Workspace: "w"})
			for i, want := range []int{c.first, c.second} {
				tun := connect(t, "tcp", s.HTTP, upstream)
				if tun.status != want || want == 200 && !tun.alive() {
					t.Errorf("connection %d: %d %s", i, tun.status, tun.phrase)
				}
			}
			if a.asked() != c.questions {
				t.Fatalf("%d questions", a.asked())
			}
			q := a.heard[0]
			if q.Session != "a" || q.Agent != "claude" || q.Workspace != "w" || q.Policy != "agent" || q.Proto != "connect" || q.Decision.Target().String() != upstream ||
				q.Decision.Code != policy.AskFirst || !slices.Equal(q.Scopes, []Scope{ScopeOnce, ScopeSession, ScopeAlways}) || q.Deadline.Sub(q.Time) != AskWait {
				t.Errorf("%+v", q)
			}
			if want := upstream + " ada a"; c.always != slices.Contains(a.always, want) {
				t.Errorf("written: %q", a.always)
			}
			var asked, answered int
			for asked < c.questions || answered < c.questions {
				switch e := <-events.ch; e.Type {
				case lease.EventAsked:
					asked++
				case lease.EventAnswered:
					answered++
				case lease.EventDenied:
					if e.Text("code") != c.code || !strings.Contains(e.Text("reason"), c.reason) {
						t.Errorf("denied: %v", e.Fields)
					}
				}
			}
		})
	}
}

// When the list is loaded, the rule there is enough; until then, and where it is not,
// the session has a grant.
func TestAskHostAlways(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	a := &asker{ask: says(HostAnswer{Allowed: true, Scope: ScopeAlways})}
	r.Push(asking(t, r, a, rule(upstream)))
	s := open(t, r, lease.Spec{ID: "a"})
	if tun := connect(t, "tcp", s.HTTP, upstream); tun.status != http.StatusOK {
		t.Fatal(tun.phrase)
	}
	eventually(t, "the grant has gone with the load of the list", func() bool {
		grants, err := r.Grants("a")
		return err == nil && len(grants) == 0
	})
}

// Nobody to ask is a refusal at once, and no question.
func TestNoApproverIsDenied(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	for name, g := range map[string]*Generation{
		"none":          {},
		"not connected": {Approvals: Approvals{Asker: &asker{away: true}}},
	} {
		asks := asking(t, r, nil, rule(upstream))
		asks.Approvals = g.Approvals
		r.Push(asks)
		s := open(t, r, lease.Spec{ID: "a"})
		events := r.hub.subscribe("a", streamQueue)
		if tun := connect(t, "tcp", s.HTTP, upstream); tun.status != http.StatusForbidden {
			t.Errorf("%s: %s", name, tun.phrase)
		}
		if e := <-events.ch; e.Type != lease.EventDenied || e.Text("code") != "ask_nobody" {
			t.Errorf("%s: %s %v", name, e.Type, e.Fields)
		}
		events.cancel()
		if err := r.Close("a"); err != nil {
			t.Fatal(err)
		}
	}
}

// A question goes on over a reload, and what has changed by then counts.
func TestAskSurvivesAReload(t *testing.T) {
	for _, denied := range []bool{false, true} {
		r := newRegistry(t)
		upstream := echo(t)
		answer := make(chan HostAnswer)
		a := &asker{ask: func(context.Context, HostQuestion) (HostAnswer, error) { return <-answer, nil }}
		before := asking(t, r, a, rule(upstream))
		r.Push(before)
		s := open(t, r, lease.Spec{ID: "a"})
		status := make(chan int)
		go func() { status <- connect(t, "tcp", s.HTTP, upstream).status }()
		eventually(t, "asked", func() bool { return a.asked() == 1 })
		after, want := asking(t, r, a, rule(upstream)), http.StatusOK
		if denied {
			set, err := policy.Compile(policy.Lists{Deny: rules(t, upstream[:strings.LastIndexByte(upstream, ':')])}, r.Own)
			if err != nil {
				t.Fatal(err)
			}
			after.Policies["agent"], want = set, http.StatusForbidden
		}
		r.Push(after)
		r.Drop(before)
		answer <- HostAnswer{Allowed: true}
		if got := <-status; got != want || a.asked() != 1 {
			t.Errorf("denied meanwhile %v: %d after %d questions", denied, got, a.asked())
		}
	}
}

// The end of a session withdraws its questions, as the client's does.
func TestQuestionEndsWithItsSession(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	gone := make(chan error, 1)
	a := &asker{ask: func(ctx context.Context, _ HostQuestion) (HostAnswer, error) {
		<-ctx.Done()
		gone <- ctx.Err()
		return HostAnswer{}, ctx.Err()
	}}
	r.Push(asking(t, r, a, rule(upstream)))
	s := open(t, r, lease.Spec{ID: "a"})
	tun := dialed(t, s.HTTP)
	if _, err := tun.Write([]byte("CONNECT " + upstream + " HTTP/1.1\r\nHost: " + upstream + "\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "asked", func() bool { return a.asked() == 1 })
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// No answer opens what is denied: it is never asked about.
func TestAskOpensNoDeny(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	a := &asker{ask: says(HostAnswer{Allowed: true, Scope: ScopeAlways})}
	g := asking(t, r, a, rule(upstream))
	set, err := policy.Compile(policy.Lists{AskAny: true, Ask: rules(t, rule(upstream)), Deny: rules(t, rule(upstream))}, r.Own)
	if err != nil {
		t.Fatal(err)
	}
	g.Policies["agent"] = set
	r.Push(g)
	s := open(t, r, lease.Spec{ID: "a"})
	for _, target := range []string{upstream, "169.254.169.254:80", "localhost:80", "10.0.0.1:80", s.SOCKS} {
		if tun := connect(t, "tcp", s.HTTP, target); tun.status != http.StatusForbidden {
			t.Errorf("%s: %s", target, tun.phrase)
		}
	}
	if a.asked() != 0 {
		t.Errorf("asked %d times", a.asked())
	}
}

func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
