package egress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/session"
)

func readApp(text string) (*App, error) {
	app := new(App)
	return app, app.UnmarshalCaddyfile(caddyfile.NewTestDispenser("egress {\n" + text + "\n}\n"))
}

func TestUpstreamOption(t *testing.T) {
	app, err := readApp("upstream http://proxy.example:3128 {\nauth_file /etc/postern/proxy\nno_proxy intra.example 10.0.0.0/8\nno_proxy 192.0.2.1 8080\nby name\n}")
	if err != nil {
		t.Fatal(err)
	}
	u := app.Upstream
	if u.URL != "http://proxy.example:3128" || u.AuthFile != "/etc/postern/proxy" || !u.ByName || len(u.NoProxy) != 3 {
		t.Errorf("%+v", u)
	}
	if p, err := u.parent(); err != nil || p.String() != "proxy.example:3128" {
		t.Errorf("%v %v", p, err)
	}
	if p, err := (*Upstream)(nil).parent(); p != nil || err != nil {
		t.Errorf("%v %v", p, err)
	}
}

// The credentials are read for each connection; a file that cannot be used is found as
// the configuration is loaded, and what is in it is never told.
func TestUpstreamSecret(t *testing.T) {
	name := filepath.Join(t.TempDir(), "auth")
	u := &Upstream{AuthFile: name}
	if err := u.checkSecret(); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("missing: %v", err)
	}
	for text, want := range map[string]string{"": "is empty", strings.Repeat("s3cret", 1000): "is longer than"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := u.checkSecret(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
	if err := os.WriteFile(name, []byte("ada:s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := readSecret(name); err != nil || text != "ada:s3cret\n" {
		t.Errorf("%q %v", text, err)
	}
}

func TestLimitsOption(t *testing.T) {
	app, err := readApp("limits {\ntunnels 100\nrequests 50\nper_second 20\nbytes 8GiB\n}\npolicy agent {\nbaseline\nlimits {\ntunnels 5\n}\n}")
	if err != nil {
		t.Fatal(err)
	}
	if *app.Limits != (Limits{Tunnels: 100, Requests: 50, PerSecond: 20, Bytes: 8 << 30}) {
		t.Errorf("%+v", app.Limits)
	}
	limits := (&Timeouts{}).limits()
	if err := app.Limits.bound(&limits); err != nil || limits.Tunnels != 100 || limits.Bytes != 8<<30 {
		t.Errorf("%+v %v", limits, err)
	}
	if caps, err := app.policyCaps(); err != nil || len(caps) != 1 || caps["agent"] != (session.Caps{Tunnels: 5}) {
		t.Errorf("%+v %v", caps, err)
	}
	if err := (&Limits{Bytes: -1}).bound(&limits); err == nil {
		t.Error("a number below zero was taken")
	}
}
