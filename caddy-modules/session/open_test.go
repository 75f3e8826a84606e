package session

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

func TestOpenIsIdempotent(t *testing.T) {
	r := newRegistry(t)
	f := newForge()
	g := generation(t, r)
	g.Broker = f
	r.Push(g)
	spec := lease.Spec{ID: "a", Policy: "agent", EgressAllowlist: []string{"x.example"}, Repository: "github.com/acme/app", LinkedRepositories: []string{"github.com/acme/lib"}, Agent: "bot", Workspace: "w"}
	first, made, err := r.put(t.Context(), spec, 7)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	again := spec
	on := true
	again.NetworkEnabled = &on // what nil means
	again.Listen = &lease.Listen{Network: lease.NetworkTCP, SOCKS: first.Session.SOCKS}
	second, made, err := r.put(t.Context(), again, 7)
	if err != nil || made {
		t.Fatal(made, err)
	}
	if first.Session.HTTP != second.Session.HTTP || first.ReadToken != second.ReadToken || len(f.minted) != 1 || !first.Session.Opened.Equal(second.Session.Opened) {
		t.Errorf("not the same session: %v, %v", first.Session, second.Session)
	}
	info, _ := r.Lookup("a")
	if info.Owner != 7 || info.Kind != kindAPI || info.Agent != "bot" || info.Workspace != "w" || info.Network != "tcp" || info.LinkedRepositories[0] != "github.com/acme/lib" {
		t.Errorf("info %+v", info)
	}

	off := false
	for field, change := range map[string]func(*lease.Spec){
		"policy":             func(s *lease.Spec) { s.Policy = "other" },
		"networkEnabled":     func(s *lease.Spec) { s.NetworkEnabled = &off },
		"egressAllowlist":    func(s *lease.Spec) { s.EgressAllowlist = nil },
		"repository":         func(s *lease.Spec) { s.Repository = "github.com/acme/other" },
		"linkedRepositories": func(s *lease.Spec) { s.LinkedRepositories = nil },
		"agent":              func(s *lease.Spec) { s.Agent = "" },
		"workspace":          func(s *lease.Spec) { s.Workspace = "v" },
		"listen.network":     func(s *lease.Spec) { s.Listen = &lease.Listen{Network: lease.NetworkUnix} },
		"listen.http":        func(s *lease.Spec) { s.Listen = &lease.Listen{Network: lease.NetworkTCP, HTTP: "127.0.0.1:1"} },
		"listen.socks":       func(s *lease.Spec) { s.Listen = &lease.Listen{Network: lease.NetworkTCP, SOCKS: "127.0.0.1:1"} },
	} {
		other := spec
		change(&other)
		if _, err := r.Open(t.Context(), other, 7); codeOf(err) != lease.CodeConflict || !strings.Contains(err.Error(), "another "+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if again, _ := r.Lookup("a"); again.HTTP != first.Session.HTTP {
		t.Error("a conflict changed the session")
	}
}

// The same PUT many times at once makes one session.
func TestOpenAtOnce(t *testing.T) {
	r := newRegistry(t)
	f := newForge()
	f.onMint(func(context.Context, string) error { time.Sleep(20 * time.Millisecond); return nil })
	g := generation(t, r)
	g.Broker = f
	r.Push(g)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, https := 0, map[string]bool{}
	for range 20 {
		wg.Go(func() {
			a, fresh, err := r.put(t.Context(), lease.Spec{ID: "a", Repository: "github.com/acme/app"}, 0)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if fresh {
				made++
			}
			https[a.Session.HTTP] = true
		})
	}
	wg.Wait()
	if made != 1 || len(https) != 1 || len(f.minted) != 1 {
		t.Errorf("%d made at %v, %d tokens", made, https, len(f.minted))
	}
}

// A PUT that meets the end of the session with its id waits and opens a new one.
func TestOpenDuringClose(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	for i := range 30 {
		open(t, r, lease.Spec{ID: "a"})
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Close("a") })
		wg.Go(func() {
			if _, err := r.Open(t.Context(), lease.Spec{ID: "a"}, 0); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
		})
		wg.Wait()
		_ = r.Close("a")
	}
}

func TestOpenRefuses(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	off := false
	for _, c := range []struct {
		name, code, say string
		spec            lease.Spec
	}{
		{"bad id", lease.CodeBadRequest, "session id", lease.Spec{ID: "a b"}},
		{"unknown policy", lease.CodeUnknownPolicy, "it has agent, other", lease.Spec{ID: "a", Policy: "agnet"}},
		{"unknown policy with the network off", lease.CodeUnknownPolicy, "agnet", lease.Spec{ID: "a", Policy: "agnet", NetworkEnabled: &off}},
		{"bad rule", lease.CodeBadRule, "egressAllowlist[1]", lease.Spec{ID: "a", EgressAllowlist: []string{"x.example", "bad*.example"}}},
		{"port out of range", lease.CodeUnavailable, "ports of sessions are 20000 to 29999", lease.Spec{ID: "a", Listen: &lease.Listen{Network: "tcp", HTTP: "127.0.0.1:80"}}},
		{"socket in an open directory", lease.CodeUnavailable, "lets other users in", lease.Spec{ID: "a", Listen: &lease.Listen{Network: "unix", HTTP: "/s"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "socket in an open directory" {
				dir := runDir(t)
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				c.spec.Listen.HTTP = filepath.Join(dir, "s")
			}
			_, err := r.Open(t.Context(), c.spec, 0)
			if codeOf(err) != c.code || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %s: %v", codeOf(err), err)
			}
			if len(r.sessions) != 0 || len(r.own.sets) != 0 {
				t.Error("something is left")
			}
		})
	}
	none := generation(t, r)
	none.DefaultPolicy = ""
	r.Push(none)
	if _, err := r.Open(t.Context(), lease.Spec{ID: "a"}, 0); codeOf(err) != lease.CodeUnknownPolicy || !strings.Contains(err.Error(), "name one") {
		t.Errorf("without a default: %v", err)
	}
}

// Statement: with the network off the proxies are up and refuse every outbound
// connection, whatever the session's own list says; the way to the forge is no
// egress.
func TestNetworkOff(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	r.Push(generation(t, r, rule(upstream)))
	off := false
	s := open(t, r, lease.Spec{ID: "a", NetworkEnabled: &off, EgressAllowlist: []string{rule(upstream)}})
	got := connect(t, "tcp", s.HTTP, upstream)
	if got.status != http.StatusForbidden || got.reason != "network_off" {
		t.Errorf("CONNECT: %s, %s", got.phrase, got.reason)
	}
	if code := socks(t, s.SOCKS, upstream); code != 2 {
		t.Errorf("SOCKS reply %#x", code)
	}
	if s.NetworkEnabled || s.Refusing == "" {
		t.Errorf("info %+v", s)
	}
	l, err := r.Network().Listen("git")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.RemoteAddr) })}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	if body := get(t, s.HTTP, "http://git.internal/x"); body != "200 a:0" {
		t.Errorf("git.internal: %q", body)
	}
	if body := get(t, s.HTTP, "http://git.internal:8080/x"); !strings.HasPrefix(body, "403") {
		t.Errorf("another port of it: %q", body)
	}
	if body := get(t, s.HTTP, "http://metrics.internal/x"); !strings.HasPrefix(body, "403") {
		t.Errorf("another local name: %q", body)
	}
}

// socks asks the SOCKS proxy for an IPv4 target and returns the reply.
func socks(tb testing.TB, proxy, target string) byte {
	tb.Helper()
	c, err := net.DialTimeout("tcp", proxy, patience)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	ap := netip.MustParseAddrPort(target)
	ip := ap.Addr().As4()
	if _, err := c.Write([]byte{5, 1, 0}); err != nil {
		tb.Fatal(err)
	}
	buf := make([]byte, 2)
	if _, err := io.ReadFull(c, buf); err != nil || buf[1] != 0 {
		tb.Fatalf("method %v, %v", buf, err)
	}
	req := append([]byte{5, 1, 0, 1}, ip[:]...)
	if _, err := c.Write(append(req, byte(ap.Port()>>8), byte(ap.Port()))); err != nil {
		tb.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf); err != nil {
		tb.Fatal(err)
	}
	return buf[1]
}

// get fetches a URL through a proxy: status, a blank, body.
func get(tb testing.TB, proxy, url string) string {
	tb.Helper()
	c, err := net.DialTimeout("tcp", proxy, patience)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if err := req.WriteProxy(c); err != nil {
		tb.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func TestUnixSessions(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	r.Push(generation(t, r, rule(upstream)))
	mine := filepath.Join(runDir(t), "h")
	s := open(t, r, lease.Spec{ID: "a", Listen: &lease.Listen{Network: "unix", HTTP: mine}})
	if s.Network != "unix" || s.HTTP != mine || s.SOCKS != filepath.Join(r.options.RunDir, "a.socks") {
		t.Fatalf("at %s %s %s", s.Network, s.HTTP, s.SOCKS)
	}
	for _, path := range []string{s.HTTP, s.SOCKS} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	tun := connect(t, "unix", s.HTTP, upstream)
	if tun.status != http.StatusOK || !tun.alive() {
		t.Fatalf("no tunnel: %s", tun.phrase)
	}
	// The paths are taken, and say so.
	if _, err := r.Open(t.Context(), lease.Spec{ID: "b", Listen: &lease.Listen{Network: "unix", HTTP: mine}}, 0); codeOf(err) != lease.CodeUnavailable || !strings.Contains(err.Error(), "serves it already") {
		t.Errorf("got %v", err)
	}
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	tun.cut(t)
	for _, path := range []string{s.HTTP, s.SOCKS} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	// The same addresses again, as a host asks for after a restart.
	again := open(t, r, lease.Spec{ID: "a", Listen: &lease.Listen{Network: "unix", HTTP: s.HTTP, SOCKS: s.SOCKS}})
	if again.HTTP != s.HTTP || again.SOCKS != s.SOCKS {
		t.Errorf("at %s, %s", again.HTTP, again.SOCKS)
	}
}

func TestSessionEnds(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	r.Push(generation(t, r, rule(upstream)))
	all := r.hub.subscribe("", 100)
	defer all.cancel()
	s := open(t, r, lease.Spec{ID: "a"})
	tun := connect(t, "tcp", s.HTTP, upstream)
	connect(t, "tcp", s.HTTP, "127.0.0.2:443")
	connect(t, "tcp", s.HTTP, "127.0.0.2:443")
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	tun.cut(t)
	if c, err := net.Dial("tcp", s.HTTP); err == nil {
		c.Close()
		t.Error("the listener is open")
	}
	if err := r.Close("a"); codeOf(err) != lease.CodeNotFound {
		t.Errorf("closed twice: %v", err)
	}
	if _, ok := r.Lookup("a"); ok || len(r.Snapshot()) != 0 {
		t.Error("still there")
	}
	// The whole life in events, with nothing of a violation about it.
	var got []string
	for len(all.ch) > 0 {
		e := <-all.ch
		text := fmt.Sprintf("%s %s", e.Type, e.Session)
		switch e.Type {
		case lease.EventDenied:
			text += fmt.Sprintf(" %v %v ×%v", e.Fields["target"], e.Fields["code"], e.Fields["count"])
			if e.Text("reason") == "" || e.Fields["rule"] == nil || e.Fields["source"] == nil || e.Text("proto") != "connect" {
				t.Errorf("fields %v", e.Fields)
			}
		case lease.EventSessionClose:
			text += fmt.Sprintf(" %v %v", e.Fields["reason"], e.Fields["denied"])
		}
		got = append(got, text)
	}
	want := []string{"session_open a", "denied a 127.0.0.2:443 not_allowed ×1", "denied a 127.0.0.2:443 not_allowed ×1", "session_close a closed on request 2"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Destruct ends what is open and what is only being opened, and a closed registry
// opens nothing.
func TestDestruct(t *testing.T) {
	r := New(Options{RunDir: runDir(t)})
	f := newForge()
	minting := make(chan struct{}, 1)
	g := generation(t, r)
	g.Broker = f
	r.Push(g)
	s := open(t, r, lease.Spec{ID: "a", Repository: "github.com/acme/app"})
	f.onMint(func(ctx context.Context, _ string) error { minting <- struct{}{}; <-ctx.Done(); return ctx.Err() })
	opening := make(chan error, 1)
	go func() {
		_, err := r.Open(t.Context(), lease.Spec{ID: "b", Repository: "github.com/acme/app"}, 0)
		opening <- err
	}()
	<-minting
	if err := r.Destruct(); err != nil {
		t.Fatal(err)
	}
	if err := r.Destruct(); err != nil {
		t.Fatal(err)
	}
	if err := <-opening; err == nil {
		t.Error("opened while closing")
	}
	if f.alive() != 0 {
		t.Error("a token outlives the registry")
	}
	if c, err := net.Dial("tcp", s.HTTP); err == nil {
		c.Close()
		t.Error("a listener outlives it")
	}
	if _, err := r.Open(t.Context(), lease.Spec{ID: "c"}, 0); codeOf(err) != lease.CodeClosing {
		t.Errorf("open: %v", err)
	}
	r.Push(g)
	r.Drop(g)
	r.Publish(lease.Event{Type: "late"})
}
