package egress

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/caddy-modules/policy"
)

func writeList(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "some.list")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Rules of list files count as those of the Caddyfile do, and are named by file and
// line.
func TestListFiles(t *testing.T) {
	allow := writeList(t, "# a list\n\nlisted.example\n*.below.example 8443 # why\n")
	deny := writeList(t, "x.below.example\n")
	app := &App{Policies: map[string]*Policy{"p": {AllowFiles: []string{allow}, DenyFiles: []string{deny}}}}
	for _, c := range []struct {
		host string
		port uint16
		want policy.Code
		from string
	}{
		{"listed.example", 443, policy.Allow, allow + ":3"},
		{"a.below.example", 8443, policy.Allow, allow + ":4"},
		{"x.below.example", 8443, policy.Denied, deny + ":1"},
		{"other.example", 443, policy.NotAllowed, ""},
	} {
		if d := decide(t, app, "p", c.host, c.port); d.Code != c.want || d.Source != c.from {
			t.Errorf("%s: got %v from %q, want %v from %q", c.host, d.Code, d.Source, c.want, c.from)
		}
	}
}

func TestListFilesRefused(t *testing.T) {
	bad, empty, dead := writeList(t, "ok.example\n*.com\n"), writeList(t, "# nothing\n"), writeList(t, "metadata.google.internal\n")
	for _, c := range []struct {
		name string
		pol  Policy
		want string
	}{
		{"malformed", Policy{AllowFiles: []string{bad}}, bad + ":2: parse rule: \"*.com\" would match"},
		{"missing", Policy{AllowFiles: []string{bad + "x"}}, "no such file"},
		{"empty deny", Policy{DenyFiles: []string{empty}}, empty + " has no rule in it"},
		{"dead", Policy{AllowFiles: []string{dead}}, dead + ":1: the rule \"metadata.google.internal\" can open nothing"},
		{"flag in deny", Policy{DenyFiles: []string{writeList(t, "a.example private\n")}}, "belong to rules that allow"},
		{"dead ask", Policy{Ask: []Rule{{Host: "localhost"}}}, "needs the flag private"},
		{"enforce", Policy{Enforce: "maybe"}, `parse enforce "maybe"`},
	} {
		app := &App{Policies: map[string]*Policy{"p": &c.pol}}
		if _, _, err := app.compile(nil, true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	// A list that allows may wait for its first line.
	app := &App{Policies: map[string]*Policy{"p": {AllowFiles: []string{empty}}}}
	if d := decide(t, app, "p", "a.example", 443); d.Code != policy.NotAllowed {
		t.Error(d.Reason())
	}
}

// The command that explains a policy knows what is asked about and what is only
// reported.
func TestCheckAskAndReport(t *testing.T) {
	app := &App{DefaultPolicy: "a", Policies: map[string]*Policy{
		"a": {Allow: []Rule{{Host: "open.example"}}, Ask: []Rule{{Host: "*.ask.example"}}},
		"b": {Allow: []Rule{{Host: "open.example"}}, Deny: []Rule{{Host: "bad.example"}}, Enforce: "off"},
		"c": {AskAny: true},
	}}
	for _, c := range []struct {
		policy, target, want string
		denied               int
	}{
		{"a", "open.example", "allowed  open.example:443  policy a", 0},
		{"a", "x.ask.example", "asks     x.ask.example:443  policy a  rule \"*.ask.example\"", 1},
		{"b", "bad.example", "reports  bad.example:443  policy b  rule \"bad.example\"", 0},
		{"b", "bad.example", "denied: not enforced, only reported: ", 0},
		{"b", "8.8.8.8", "reports  8.8.8.8:443", 0},
		{"b", "10.0.0.1", "denied   10.0.0.1:443", 1},
		{"b", "169.254.169.254:80", "denied   169.254.169.254:80", 1},
		{"c", "some.example:22", "asks     some.example:22  policy c\n", 1},
		{"c", "some.example:22", "ask: some.example:22 is refused until an approver allows it", 1},
	} {
		var out strings.Builder
		denied, err := app.check(&out, []netip.AddrPort{}, c.policy, []string{c.target})
		if err != nil || denied != c.denied || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s %s: %d denied, %v, want %q in\n%s", c.policy, c.target, denied, err, c.want, out.String())
		}
	}
}

// A rule of the JSON is for one scheme, or for any; a misspelt one is no rule at all.
func TestRuleScheme(t *testing.T) {
	rules, err := compileRules([]Rule{{Host: "a.example", Scheme: "http", Private: true}, {Host: "b.example", Scheme: "https"}}, "allow")
	if err != nil || rules[0].String() != "a.example http private" || rules[1].String() != "b.example https" {
		t.Errorf("got %v, %v", rules, err)
	}
	for _, r := range []Rule{{Host: "a.example", Scheme: "HTTP"}, {Host: "a.example", Scheme: "443"}, {Host: "a.example", Scheme: "https", Ports: []uint16{80}}, {Host: "a.example", Scheme: "http", TCP: true}} {
		if got, err := compileRules([]Rule{r}, "allow"); err == nil {
			t.Errorf("%+v: got %v", r, got)
		}
	}
}
