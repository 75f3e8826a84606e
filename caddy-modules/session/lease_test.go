package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// leased is a registry with open doors, a generation and a forge.
func leased(t *testing.T, lines ...string) (r *Registry, g *Generation, f *forge, path string) {
	t.Helper()
	r = newRegistry(t)
	f = newForge()
	g = generation(t, r, lines...)
	g.Broker = f
	r.Push(g)
	return r, g, f, openDoors(t, r)
}

func TestLease(t *testing.T) {
	upstream := echo(t)
	r, _, f, path := leased(t, rule(upstream))
	p := pair(t)
	l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run-1", Repository: "github.com/acme/app"}}, p)
	if err != nil {
		t.Fatal(err)
	}
	a := l.Answer()
	if !a.OK || a.Session.ID != "run-1" || a.Session.Kind != kindLease || a.Session.HTTP != p.HTTP.Addr().String() || a.Session.PID != os.Getpid() || a.Session.Owner != os.Geteuid() {
		t.Errorf("answer %+v", a.Session)
	}
	if a.ReadToken != "secret-1" || a.Git.URL != "http://git.internal/" || a.Born != r.Born() {
		t.Errorf("answer %v, git %+v, born %s", a, a.Git, a.Born)
	}
	if e := <-l.Events(); e.Type != lease.EventSessionOpen || e.Text("policy") != "agent" {
		t.Errorf("first event %+v", e)
	}
	tun := connect(t, "tcp", p.HTTP.Addr().String(), upstream)
	if tun.status != http.StatusOK || !tun.alive() {
		t.Fatalf("no tunnel: %s", tun.phrase)
	}
	// The launcher hears of its own refusals, and of nobody else's.
	open(t, r, lease.Spec{ID: "other"})
	connect(t, "tcp", p.HTTP.Addr().String(), "127.0.0.2:443")
	r.Publish(lease.Event{Type: lease.EventPush, Session: "run-1", Fields: map[string]any{"repository": "github.com/acme/app"}})
	if e := <-l.Events(); e.Type != lease.EventDenied || e.Text("target") != "127.0.0.2:443" || e.Fields["count"] != 1.0 {
		t.Errorf("event %+v", e)
	}
	if e := <-l.Events(); e.Type != lease.EventPush {
		t.Errorf("event %+v", e)
	}
	if !r.Own(netip.MustParseAddrPort(p.HTTP.Addr().String())) {
		t.Error("a lent listener of this host is not own")
	}

	// The lease ends, and all of it with it; the listeners are the launcher's.
	start := time.Now()
	l.Close()
	tun.cut(t)
	eventually(t, "the session is gone", func() bool { _, ok := r.Lookup("run-1"); return !ok })
	eventually(t, "the token is revoked", func() bool { return f.alive() == 0 })
	if d := time.Since(start); d > revokeFor {
		t.Errorf("took %v", d)
	}
	c, err := net.Dial("tcp", p.HTTP.Addr().String())
	if err != nil {
		t.Fatal("the launcher's own listener is closed:", err)
	}
	c.Close()
}

func TestLeaseRefusals(t *testing.T) {
	r, g, f, path := leased(t)
	held, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "held"}}, pair(t))
	if err != nil {
		t.Fatal(err)
	}
	open(t, r, lease.Spec{ID: "api"})
	for _, c := range []struct {
		name, code, say string
		spec            lease.Spec
	}{
		{"another launcher with the id", lease.CodeInUse, `"held" is open already`, lease.Spec{ID: "held"}},
		{"the id of an API session", lease.CodeInUse, `"api" is open already`, lease.Spec{ID: "api"}},
		{"unknown policy", lease.CodeUnknownPolicy, "it has agent, other", lease.Spec{ID: "a", Policy: "agnet"}},
		{"bad rule", lease.CodeBadRule, "egressAllowlist[0]", lease.Spec{ID: "a", EgressAllowlist: []string{"*"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := lend(t, path, lease.Hello{Spec: c.spec}, pair(t))
			if codeOf(err) != c.code || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %s: %v", codeOf(err), err)
			}
		})
	}
	// The host cannot take a launcher's session over either.
	if _, err := r.Open(t.Context(), lease.Spec{ID: "held"}, 0); codeOf(err) != lease.CodeInUse {
		t.Errorf("PUT on a leased session: %v", err)
	}
	if len(f.minted) != 0 {
		t.Error("a refused lease cost a token")
	}
	select {
	case <-held.Done():
		t.Error("the first launcher lost its lease")
	default:
	}
	r.Drop(g)
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t)); codeOf(err) != lease.CodeNotConfigured {
		t.Errorf("without a configuration: %v", err)
	}
}

// Many launchers with one id: one is served, the rest are refused, and the id is
// free when that one has gone.
func TestOneIDManyLaunchers(t *testing.T) {
	r, _, f, path := leased(t)
	f.onMint(func(context.Context, string) error { time.Sleep(30 * time.Millisecond); return nil })
	spec := lease.Spec{ID: "a", Repository: "github.com/acme/app"}
	type outcome struct {
		l   *lease.Lease
		err error
	}
	const n = 8
	outcomes := make(chan outcome, n)
	for range n {
		p := pair(t)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			l, err := lease.Lend(ctx, path, lease.Hello{Spec: spec}, p)
			outcomes <- outcome{l, err}
		}()
	}
	var won *lease.Lease
	for range n {
		o := <-outcomes
		switch {
		case o.err == nil && won == nil:
			won = o.l
		case o.err == nil:
			o.l.Close()
			t.Error("two launchers hold one id")
		case codeOf(o.err) != lease.CodeInUse:
			t.Error(o.err)
		}
	}
	if won == nil {
		t.Fatal("nobody was served")
	}
	if len(f.minted) != 1 {
		t.Errorf("%d tokens", len(f.minted))
	}
	won.Close()
	eventually(t, "the id is free", func() bool { _, ok := r.Lookup("a"); return !ok })
	eventually(t, "it can be lent again", func() bool {
		l, err := lend(t, path, lease.Hello{Spec: spec}, pair(t))
		if err != nil && codeOf(err) != lease.CodeInUse {
			t.Fatal(err)
		}
		return err == nil && l != nil
	})
}

// A launcher that goes while its token is being minted gets none: the id is free
// at once, and the token is revoked when it comes.
func TestLauncherGoesEarly(t *testing.T) {
	r, _, f, path := leased(t)
	minting, answer := make(chan struct{}), make(chan struct{})
	f.onMint(func(context.Context, string) error {
		close(minting)
		<-answer
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	lost := make(chan error, 1)
	p := pair(t)
	go func() {
		_, err := lease.Lend(ctx, path, lease.Hello{Spec: lease.Spec{ID: "a", Repository: "github.com/acme/app"}}, p)
		lost <- err
	}()
	<-minting
	cancel()
	if err := <-lost; !errors.Is(err, context.Canceled) {
		t.Errorf("lend: %v", err)
	}
	eventually(t, "the id is free", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.sessions) == 0
	})
	close(answer)
	eventually(t, "the token that came is revoked", func() bool { return f.n.Load() == 1 && f.alive() == 0 })
}

// The appliance dies and comes back. The launcher lends the same listeners: the
// request that was made meanwhile is answered by the new process, the earlier
// token is adopted instead of a second one made, and it is revoked at the end.
func TestResumeAfterARestart(t *testing.T) {
	dir := runDir(t)
	upstream := echo(t)
	start := func() (*Registry, *forge) {
		r := New(Options{RunDir: dir})
		f := newForge()
		g := generation(t, r, rule(upstream))
		g.Broker = f
		r.Push(g)
		openDoors(t, r)
		return r, f
	}
	first, _ := start()
	path := dir + "/" + LeaseSocket
	p := pair(t)
	spec := lease.Spec{ID: "a", Repository: "github.com/acme/app"}
	l, err := lend(t, path, lease.Hello{Spec: spec}, p)
	if err != nil {
		t.Fatal(err)
	}
	before := l.Answer()
	if err := first.Destruct(); err != nil { // as far as the launcher can tell, a crash
		t.Fatal(err)
	}
	<-l.Done()
	if _, err := lend(t, path, lease.Hello{Spec: spec}, p); !errors.Is(err, lease.ErrNotRunning) {
		t.Errorf("while it is away: %v", err)
	}

	// The run goes on and asks for something.
	waiting, err := net.DialTimeout("tcp", p.HTTP.Addr().String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	fmt.Fprintf(waiting, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", upstream, upstream)

	second, f := start()
	defer func() { _ = second.Destruct() }()
	l, err = lend(t, path, lease.Hello{Spec: spec, Resume: &lease.Resume{ReadToken: before.ReadToken, Born: before.Born}}, p)
	if err != nil {
		t.Fatal(err)
	}
	_ = waiting.SetDeadline(time.Now().Add(patience))
	if tun := readAnswer(t, waiting); tun.status != http.StatusOK || !tun.alive() {
		t.Errorf("the waiting request got %s", tun.phrase)
	}
	after := l.Answer()
	if after.Born == before.Born {
		t.Error("the new process passes for the old one")
	}
	if after.ReadToken != before.ReadToken || len(f.minted) != 0 || len(f.adopted) != 1 || f.adopted[0] != before.ReadToken {
		t.Errorf("token %q after %q, minted %v, adopted %v", after.ReadToken, before.ReadToken, f.minted, f.adopted)
	}
	if v, _, ok := second.ReadToken("a"); !ok || v != before.ReadToken {
		t.Errorf("ReadToken gives %q, %v", v, ok)
	}
	l.Close()
	eventually(t, "the adopted token is revoked", func() bool { return f.alive() == 0 })
}

// A connection that broke is not a restart: that session has ended, its token with
// it, and the launcher gets a new one.
func TestResumeWithoutARestart(t *testing.T) {
	r, _, f, path := leased(t)
	spec := lease.Spec{ID: "a", Repository: "github.com/acme/app"}
	p := pair(t)
	l, err := lend(t, path, lease.Hello{Spec: spec}, p)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	eventually(t, "the first session is gone", func() bool { _, ok := r.Lookup("a"); return !ok && f.alive() == 0 })
	l, err = lend(t, path, lease.Hello{Spec: spec, Resume: &lease.Resume{ReadToken: "secret-1", Born: r.Born()}}, p)
	if err != nil {
		t.Fatal(err)
	}
	if l.Answer().ReadToken != "secret-2" || len(f.adopted) != 0 {
		t.Errorf("token %q, adopted %v", l.Answer().ReadToken, f.adopted)
	}
}

// Without a forge there is nothing to adopt a token with; the run is not refused
// for it.
func TestResumeWithoutAForge(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	l, err := lend(t, openDoors(t, r), lease.Hello{Spec: lease.Spec{ID: "a"}, Resume: &lease.Resume{ReadToken: "old", Born: "before"}}, pair(t))
	if err != nil {
		t.Fatal(err)
	}
	if l.Answer().ReadToken != "" {
		t.Error("a token nobody can revoke was handed out")
	}
}

// Both doors ask the kernel who knocks.
func TestAnotherUser(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	var unknown atomic.Bool
	r.credentials = func(*net.UnixConn) (lease.Peer, error) {
		if unknown.Load() {
			return lease.Peer{}, errors.New("no such option")
		}
		return lease.Peer{UID: os.Geteuid() + 1}, nil
	}
	path := openDoors(t, r)
	_, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t))
	if codeOf(err) != lease.CodeNotPermitted {
		t.Errorf("lease.sock: %v", err)
	}
	resp, err := control(t, r.options.RunDir).Get("http://control/v1/state")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e lease.Error
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || resp.StatusCode != http.StatusForbidden || e.Code != lease.CodeNotPermitted {
		t.Errorf("control.sock: %d %+v %v", resp.StatusCode, e, err)
	}
	unknown.Store(true)
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t)); err == nil {
		t.Error("a peer nobody knows was let in")
	}
	if len(r.Snapshot()) != 0 {
		t.Error("a session was opened")
	}
}

// A peer that connects and says nothing costs nothing but its connection, and
// does not hold up the end.
func TestSilentPeers(t *testing.T) {
	r, _, _, path := leased(t)
	for range 20 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t)); err != nil {
		t.Error("they hold up others:", err)
	}
	start := time.Now()
	if err := r.Destruct(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("they hold up the end for %v", d)
	}
}

// What a launcher's socket says when the appliance refuses is one line of JSON,
// whatever it sent.
func TestHostileHello(t *testing.T) {
	_, _, _, path := leased(t)
	for _, text := range []string{"{}\n", "\n", "GET /v1/state HTTP/1.1\r\n\r\n", `{"version":1,"spec":{"id":"a"}}` + "\n"} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write([]byte(text))
		line, err := bufio.NewReader(c).ReadBytes('\n')
		var a lease.Answer
		if err != nil || json.Unmarshal(line, &a) != nil || a.OK || a.Error == nil {
			t.Errorf("%q: %q, %v", text, line, err)
		}
		c.Close()
	}
}
