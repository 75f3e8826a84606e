package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
)

type noNames struct{}

func (noNames) Resolve(context.Context, string) ([]netip.Addr, error) {
	return nil, errors.New("no names here")
}

// anAppliance serves leases in dir and allows one address.
func anAppliance(tb testing.TB, dir, allow string) {
	tb.Helper()
	rule, err := policy.ParseRule(strings.Replace(allow, ":", " ", 1), policy.Origin{File: "test", Line: 1})
	must(tb, err)
	r := session.New(session.Options{RunDir: dir})
	tb.Cleanup(func() { must(tb, r.Destruct()) })
	set, err := policy.Compile(policy.Lists{Allow: []policy.Rule{rule}}, r.Own)
	must(tb, err)
	r.Push(&session.Generation{Policies: map[string]*policy.Set{"agent": set}, DefaultPolicy: "agent", Resolver: noNames{}})
	must(tb, r.Listen())
}

// TestSPEC61WrappedReachesTheAppliance runs clients on the host's loopback, as on macOS:
// with the run's secret its proxies serve them by the rules, without it nobody, and when
// the run has ended nobody at all.
func TestSPEC61WrappedReachesTheAppliance(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer origin.Close()
	run, err := os.MkdirTemp("", "r") //nolint:usetesting // the path of a socket must be short
	must(t, err)
	defer os.RemoveAll(run)
	target := origin.Listener.Addr().String()
	anAppliance(t, run, target)

	w, _ := standIn(t, "")
	out := capture(t)
	p, err := wrap(t, w, Options{Stdout: out, Stderr: out})
	must(t, err)
	login := p.Facts().Inside().Login
	l, err := lease.Lend(t.Context(), filepath.Join(run, "lease.sock"), lease.Hello{Spec: lease.Spec{ID: "mac"}, Login: login}, p.Pair())
	must(t, err)
	defer l.Close()

	proxy := func(scheme string, user *url.Userinfo, ln *net.TCPListener) string {
		return (&url.URL{Scheme: scheme, User: user, Host: ln.Addr().String()}).String()
	}
	other := url.UserPassword(login.User, lease.NewLogin().Password)
	script := `ask() { curl -q -sS -o - --max-time 20 -w ' %{http_code} %{exitcode}\n' -x "$1" "$2" 2>/dev/null; }
ask "$HTTP" http://$TARGET/; ask "$SOCKS" http://$TARGET/; ask "$HTTP" http://127.0.0.2:9/ | tail -1; ask "$OTHER" http://$TARGET/ | tail -1; ask "$NOBODY" http://$TARGET/ | tail -1`
	must(t, p.Exec(Command{
		Argv: []string{"/bin/sh", "-c", script},
		Env: []string{
			"PATH=/usr/bin:/bin", "TARGET=" + target, "HTTP=" + proxy("http", login.Userinfo(), p.Pair().HTTP), "SOCKS=" + proxy("socks5h", login.Userinfo(), p.Pair().SOCKS),
			"OTHER=" + proxy("http", other, p.Pair().HTTP), "NOBODY=" + proxy("http", nil, p.Pair().HTTP),
		},
	}))
	at := p.Pair().HTTP.Addr().String()
	_, err = p.Wait()
	must(t, err)
	want := "hello 200 0\nhello 200 0\n 403 0\n 407 0\n 407 0\n"
	got := slurp(t, out)
	// The refusals have a text; what counts is the last line of each.
	if got = strings.ReplaceAll(got, "\n\n", "\n"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_ = l.Close()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", at)
		if err != nil {
			break
		}
		_ = c.Close()
		if time.Now().After(end) {
			t.Fatal("its listener outlives the run")
		}
	}
}
