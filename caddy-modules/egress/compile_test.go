package egress

import (
	"strings"
	"testing"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
)

// decide asks one policy of an app about a host and port.
func decide(t *testing.T, app *App, name, host string, port uint16) policy.Decision {
	t.Helper()
	sets, byDefault, err := app.compile(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if name == "" {
		name = byDefault
	}
	h, err := policy.ParseHost(host)
	if err != nil {
		t.Fatal(err)
	}
	target, err := policy.NewTarget(h, port, policy.SchemeTLS)
	if err != nil {
		t.Fatal(err)
	}
	return sets[name].Decide(target)
}

// TestDefaults holds what a configuration means by what it leaves out.
func TestDefaults(t *testing.T) {
	allow := []Rule{{Host: "own.example"}}
	for _, c := range []struct {
		name string
		app  *App
		host string
		want policy.Code
	}{
		{"nothing at all has the baseline", &App{}, "github.com", policy.Allow},
		{"and the built-in denials", &App{}, "o1.sentry.io", policy.AlwaysDenied},
		{"a policy that says nothing allows nothing", &App{Policies: map[string]*Policy{"offline": {}}}, "github.com", policy.NotAllowed},
		{"own rules replace the baseline", &App{Policies: map[string]*Policy{"p": {Allow: allow}}}, "github.com", policy.NotAllowed},
		{"own rules allow", &App{Policies: map[string]*Policy{"p": {Allow: allow}}}, "own.example", policy.Allow},
		{"or add to it", &App{Policies: map[string]*Policy{"p": {Baseline: true, Allow: allow}}}, "github.com", policy.Allow},
		{"deny takes a host out of it", &App{Policies: map[string]*Policy{"p": {Baseline: true, Deny: []Rule{{Host: "github.com"}}}}}, "github.com", policy.Denied},
		{"an own always_deny replaces the built-in one", &App{AlwaysDeny: []Rule{{Host: "pypi.org"}}}, "pypi.org", policy.AlwaysDenied},
		{"but never opens metadata services", &App{AlwaysDeny: []Rule{{Host: "pypi.org"}}}, "169.254.169.254", policy.AlwaysDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := decide(t, c.app, "", c.host, 443); d.Code != c.want {
				t.Errorf("%s: %s", d.Code, d.Reason())
			}
		})
	}
}

// TestSources holds that a decision names where its rule stands.
func TestSources(t *testing.T) {
	app := &App{Policies: map[string]*Policy{"p": {Baseline: true, Allow: []Rule{{Host: "own.example"}, {Host: "file.example", From: "a.list:9"}}}}}
	for host, want := range map[string]string{
		"own.example":  "policies.p.allow:1",
		"file.example": "a.list:9",
		"github.com":   "built-in configs/allow/",
	} {
		if d := decide(t, app, "p", host, 443); !strings.HasPrefix(d.Source, want) {
			t.Errorf("%s: source %q, want %q", host, d.Source, want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	two := map[string]*Policy{"a": {}, "b": {}}
	for _, c := range []struct {
		name string
		app  *App
		want string
	}{
		{"no default among several", &App{Policies: two}, "name one of a, b"},
		{"unknown default", &App{Policies: two, DefaultPolicy: "c"}, "name one of a, b"},
		{"unknown default without policies", &App{DefaultPolicy: "c"}, "name one of agent"},
		{"null policy", &App{Policies: map[string]*Policy{"a": nil}}, "policy a is null"},
		{"policy that no session can name", &App{Policies: map[string]*Policy{"a b": {}}}, "not a policy name"},
		{"empty always_deny", &App{AlwaysDeny: []Rule{}}, "always_deny is empty"},
		{"rule in allow", &App{Policies: map[string]*Policy{"a": {Allow: []Rule{{Host: "*"}}}}}, "policies.a.allow:1"},
		{"rule in deny", &App{Policies: map[string]*Policy{"a": {Deny: []Rule{{Host: "*"}}}}}, "policies.a.deny:1"},
		{"rule in always_deny", &App{AlwaysDeny: []Rule{{Host: "*"}}}, "always_deny:1"},
		{"flag in deny", &App{Policies: map[string]*Policy{"a": {Deny: []Rule{{Host: "a.example", Private: true}}}}}, "belong to rules that allow"},
		{"rule that can open nothing", &App{Policies: map[string]*Policy{"a": {Allow: []Rule{{Host: "169.254.169.254"}}}}}, "policies.a.allow:1: the rule \"169.254.169.254\" can open nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := c.app.compile(nil, true); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]proxy.SNIMode{"": proxy.SNIEnforce, "enforce": proxy.SNIEnforce, "log": proxy.SNILog, "off": proxy.SNIOff} {
		if got, err := parseSNI(text); err != nil || got != want {
			t.Errorf("sni %q: %v, %v", text, got, err)
		}
	}
	if _, err := parseSNI("Enforce"); err == nil {
		t.Error("sni Enforce: accepted")
	}
	for _, text := range []string{"", "20000", "1-", "-1", "2-1", "5-5", "0-9", "1-70000", "a-b", "1-2-3"} {
		if _, _, err := parsePorts(text); err == nil {
			t.Errorf("ports %q: accepted", text)
		}
	}
	if first, last, err := parsePorts("20000-20001"); err != nil || first != 20000 || last != 20001 {
		t.Errorf("ports: %d %d %v", first, last, err)
	}
	if (*Sessions)(nil).ports() != defaultPorts || (&Sessions{Ports: "1-2"}).ports() != "1-2" {
		t.Error("the default of the ports")
	}
	if err := (&Timeouts{Idle: -1}).validate(); err == nil || !strings.Contains(err.Error(), "idle") {
		t.Errorf("negative timeout: %v", err)
	}
	got := (&Timeouts{Header: 1, Hello: 2, Dial: 3, Idle: 4, Total: 5}).limits()
	if got != (proxy.Limits{Header: 1, Hello: 2, Dial: 3, Idle: 4, Total: 5}) {
		t.Errorf("limits: %+v", got)
	}
	for _, hosts := range [][]string{{"127.0.0.1"}, {"a b"}, {""}, {"git.internal", "GIT.internal."}} {
		if _, err := (&App{LocalHosts: hosts}).locals(); err == nil {
			t.Errorf("local %q: accepted", hosts)
		}
	}
}
