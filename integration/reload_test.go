package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"postern/caddy-modules/session/lease"
)

func init() {
	caddy.RegisterModule(failApp{})
	caddy.RegisterModule(failLoader{})
}

// failApp fails where it is told to. It stands for any other app of a
// configuration and is a part of this test binary alone.
type failApp struct {
	At string `json:"at"` // provision, validate or start
}

// onFailing is called where a configuration is about to fail as told, with the stage:
// at start, the apps that started before are up at that moment, and at load all are.
var onFailing atomic.Pointer[func(at string)]

var errFail = errors.New("failing as told")

func (failApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fail", New: func() caddy.Module { return new(failApp) }}
}

func (f *failApp) Provision(caddy.Context) error { return f.fail("provision") }
func (f *failApp) Validate() error               { return f.fail("validate") }
func (f *failApp) Stop() error                   { return nil }

func (f *failApp) Start() error { return f.fail("start") }

func (f *failApp) fail(at string) error {
	if f.At != at {
		return nil
	}
	return failNow(at)
}

func failNow(at string) error {
	if probe := onFailing.Load(); probe != nil {
		(*probe)(at)
	}
	return errFail
}

// failLoader is a configuration loader that fails. Caddy calls it when every app
// has started, and then takes the whole configuration back without Stop.
type failLoader struct{}

func (failLoader) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.config_loaders.fail", New: func() caddy.Module { return new(failLoader) }}
}

func (failLoader) LoadConfig(caddy.Context) ([]byte, error) { return nil, failNow("load") }

// reloads is a Caddy in this process with one open session, whose policy is
// replaced again and again.
type reloads struct {
	run      string
	proxy    string // the session's HTTP proxy
	socks    string
	kept     string // an upstream that every policy allows
	revoked  string // one that only the first policy allows
	added    string // one that only later policies allow
	keptConn *tunnel
}

// config is a configuration that allows the given addresses; more is spliced
// into the object of apps, and admin into that of config, about the configuration.
func (r *reloads) config(more, admin string, allow ...string) string {
	rules := make([]string, 0, len(allow))
	for _, a := range allow {
		host, port, _ := net.SplitHostPort(a)
		rules = append(rules, fmt.Sprintf(`{"host": %q, "ports": [%s]}`, host, port))
	}
	return fmt.Sprintf(`{
		"admin": {"listen": "unix/%s/admin.sock|0600", "config": {"persist": false%s}},
		"logging": {"logs": {"default": {"level": "ERROR"}}},
		"apps": {
			"egress": {"policies": {"agent": {"allow": [%s]}}}%s
		}
	}`, r.run, admin, strings.Join(rules, ", "), more)
}

func newReloads(t *testing.T) *reloads {
	t.Helper()
	r := &reloads{run: runDir(t), kept: echoProcess(t), revoked: echoProcess(t), added: echoProcess(t)}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := r.load(r.kept, r.revoked); err != nil {
		t.Fatal(err)
	}
	got, err := control(t, r.run, http.MethodPut, "/v1/sessions/reload", `{"id": "reload", "policy": "agent", "listen": {"network": "tcp"}}`)
	if err != nil || got.status/100 != 2 {
		t.Fatalf("open a session: %+v %v", got, err)
	}
	var opened lease.Answer
	if err := json.Unmarshal([]byte(got.body), &opened); err != nil || opened.Session.HTTP == "" {
		t.Fatalf("no listener in %s (%v)", got.body, err)
	}
	r.proxy, r.socks = opened.Session.HTTP, opened.Session.SOCKS
	r.keptConn = connect(t, r.proxy, r.kept)
	return r
}

// load reloads with a configuration that allows these.
func (r *reloads) load(allow ...string) error {
	return caddy.Load([]byte(r.config("", "", allow...)), true)
}

// failedReload is a way in which a reload fails.
type failedReload struct {
	name, more, admin string
	old, spoilt       string // what is replaced in the configuration, once
	lax               bool   // it fails because others may enter the run directory
	want              string
	times             int // to see it, where that is chance
	// late says that it may fail when the new rules govern new connections already.
	late bool
}

func failedReloads() []failedReload {
	return []failedReload{
		{name: "unknown field of an app", more: `, "http": {"serves": {}}`, want: "unknown field"},
		{name: "unknown app", more: `, "egresss": {}`, want: "unknown module"},
		{name: "unknown field inside the app", old: `"policies"`, spoilt: `"polices"`, want: "polices"},
		{name: "another app fails to provision", more: `, "fail": {"at": "provision"}`, want: errFail.Error()},
		{name: "another app fails to validate", more: `, "fail": {"at": "validate"}`, want: errFail.Error()},
		// Apps start in random order; twenty times is enough to see ours before
		// the other one and after it.
		{name: "another app fails to start", more: `, "fail": {"at": "start"}`, want: errFail.Error(), times: 20, late: true},
		{name: "our own app fails to start", lax: true, want: "lets other users in"},
		{
			name: "a missing app key",
			more: `, "http": {"servers": {"git": {"listen": ["sandbox/git:80"], "routes": [{"handle": [{"handler": "git_gateway", "token": {"from": "github_app", "app_id": "1", "key_file": "/nonexistent/app.pem"}}]}]}}}`,
			want: "read app key",
		},
		{name: "after all apps have started", admin: `, "load": {"module": "fail"}`, want: errFail.Error(), late: true},
	}
}

// fail reloads in a way that fails, with a configuration that would allow these.
func (r *reloads) fail(t *testing.T, c failedReload, allow ...string) {
	t.Helper()
	if c.lax {
		chmod(t, r.run, 0o750)
		defer chmod(t, r.run, 0o700)
	}
	text := strings.Replace(r.config(c.more, c.admin, allow...), c.old, c.spoilt, 1)
	if err := caddy.Load([]byte(text), true); err == nil || !strings.Contains(err.Error(), c.want) {
		t.Fatalf("%s: the reload gives %v, want %q", c.name, err, c.want)
	}
}

// TestFailedReloads goes through the ways a reload can fail. After each the old
// configuration rules as if nothing had been tried: what it allows can be
// reached, what the new one would have allowed cannot, and the tunnel that the
// new one would have revoked is open.
func TestFailedReloads(t *testing.T) {
	r := newReloads(t)
	doomed := connect(t, r.proxy, r.revoked)
	for _, c := range failedReloads() {
		t.Run(c.name, func(t *testing.T) {
			orders := map[bool]int{}
			probe := func(string) { orders[dialThrough(t, r.proxy, r.added) == http.StatusOK]++ }
			onFailing.Store(&probe)
			defer onFailing.Store(nil)
			for range max(c.times, 1) {
				r.fail(t, c, r.kept, r.added)
			}
			if c.times > 0 && (orders[true] == 0 || orders[false] == 0) {
				t.Errorf("our app started before the other %d times and after it %d times; both must be seen", orders[true], orders[false])
			}
			r.ruledByFirst(t)
			doomed.echo(t, c.name)
		})
	}

	// Then a good one: the tunnel that it revokes is cut, the other is not.
	if err := r.load(r.kept, r.added); err != nil {
		t.Fatal(err)
	}
	if !doomed.closed(t) {
		t.Error("the tunnel to a host that left the list is open")
	}
	r.keptConn.echo(t, "kept")
	if got := dialThrough(t, r.proxy, r.revoked); got != http.StatusForbidden {
		t.Errorf("the revoked host gives %d", got)
	}
	if got := dialThrough(t, r.proxy, r.added); got != http.StatusOK {
		t.Errorf("the added host gives %d", got)
	}
}

// ruledByFirst checks that the first configuration governs and that every door
// shows the session.
func (r *reloads) ruledByFirst(t *testing.T) {
	t.Helper()
	for upstream, want := range map[string]int{r.kept: http.StatusOK, r.revoked: http.StatusOK, r.added: http.StatusForbidden} {
		if got := dialThrough(t, r.proxy, upstream); got != want {
			t.Errorf("%s gives %d, want %d", upstream, got, want)
		}
	}
	r.keptConn.echo(t, "first")
	if got, err := control(t, r.run, http.MethodGet, "/v1/sessions/reload", ""); err != nil || got.status != http.StatusOK {
		t.Errorf("control API: %+v %v", got, err)
	}
	// The admin server of the rejected configuration stays up. It must show
	// what is, not what was rejected.
	got, err := unixRequest(t, filepath.Join(r.run, "admin.sock"), http.MethodGet, "/egress/sessions", "")
	if err != nil || !strings.Contains(got.body, `"reload"`) {
		t.Errorf("admin endpoint: %+v %v", got, err)
	}
}

// TestReloadTakesThePolicyAway removes a session's policy and then the app: the
// session must close its doors, not open them.
func TestReloadTakesThePolicyAway(t *testing.T) {
	r := newReloads(t)
	other := strings.Replace(r.config("", "", r.kept), `"agent"`, `"other"`, 1)
	if err := caddy.Load([]byte(other), true); err != nil {
		t.Fatal(err)
	}
	if !r.keptConn.closed(t) {
		t.Error("a tunnel outlived the policy of its session")
	}
	if got := dialThrough(t, r.proxy, r.kept); got != http.StatusForbidden {
		t.Errorf("without its policy the session gives %d", got)
	}
	// The policy is back: so is the session.
	if err := r.load(r.kept); err != nil {
		t.Fatal(err)
	}
	if got := dialThrough(t, r.proxy, r.kept); got != http.StatusOK {
		t.Errorf("with its policy back the session gives %d", got)
	}
	none := fmt.Sprintf(`{"admin": {"listen": "unix/%s/admin.sock|0600", "config": {"persist": false}}}`, r.run)
	if err := caddy.Load([]byte(none), true); err != nil {
		t.Fatal(err)
	}
	if _, err := tryConnect(r.proxy, r.kept); err == nil {
		t.Error("the session's listener outlived the app")
	}
	for _, name := range []string{"control.sock", "lease.sock"} {
		if _, err := os.Lstat(filepath.Join(r.run, name)); err == nil {
			t.Errorf("%s outlived the app", name)
		}
	}
	got, err := unixRequest(t, filepath.Join(r.run, "admin.sock"), http.MethodGet, "/egress/sessions", "")
	if err != nil || got.status != http.StatusNotFound {
		t.Errorf("the admin route answers %+v %v", got, err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// metric sums a counter over its labels.
func metric(t *testing.T, run, name string) float64 {
	t.Helper()
	got, err := unixRequest(t, filepath.Join(run, "admin.sock"), http.MethodGet, "/metrics", "")
	if err != nil || got.status != http.StatusOK {
		t.Fatalf("metrics: %+v %v", got, err)
	}
	sum := 0.0
	for line := range strings.Lines(got.body) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			var v float64
			if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}
