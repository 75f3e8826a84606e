package gitgateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/gitgw"
)

// host answers lookups with one verdict, on a Unix socket.
type host struct {
	address string
	verdict atomic.Value // string
	asked   atomic.Value // the body of the last question
}

func newHost(t *testing.T, verdict string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "rules") //nolint:usetesting // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "r.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{address: "unix/" + path}
	h.verdict.Store(verdict)
	h.asked.Store("")
	srv := &httptest.Server{Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.asked.Store(string(body))
		_, ref, _ := strings.Cut(string(body), `"ref":"`)
		ref, _, _ = strings.Cut(ref, `"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"version":1,"updates":[{"ref":%q,"verdict":%q,"reason":"the host's words"}]}`, ref, h.verdict.Load())
	})}}
	srv.Start()
	t.Cleanup(srv.Close)
	return h
}

// TestCheckAsksTheRuleSource: the command says what the gateway would.
func TestCheckAsksTheRuleSource(t *testing.T) {
	for _, c := range []struct {
		name, verdict, gateway, ref, action string
		status                              int
		want                                []string
		asked                               bool
	}{
		{"allows", "allow", oneRepo, "agent/x", "create", 0, []string{"allow  create", "the rule source says allow"}, true},
		{"narrows", "deny", oneRepo, "agent/x", "create", exitDenied, []string{`deny   create refs/heads/agent/x of github.com/acme/app  rule "rule source"`, "the host's words"}, true},
		{"asks", "ask", oneRepo + approver, "agent/x", "force", exitAsks, []string{"ask    force"}, true},
		{"asks and nobody is there", "ask", oneRepo, "agent/x", "create", exitDenied, []string{"no approver"}, true},
		{"is narrowed", "allow", oneRepo, "feature", "create", exitDenied, []string{"no rule allows"}, false},
		{"alone", "allow", "", "feature", "create", 0, []string{`rule "rule source"`}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, c.verdict)
			gateway := strings.Replace(c.gateway, `["agent/**"]`, `["agent/**"], "actions": ["create", "update", "force"]`, 1)
			config := configWith(fmt.Sprintf(`, "rules": {"from": "http", "url": %q}%s`, h.address, gateway))
			var out strings.Builder
			status, err := check(caddyContext(t), &out, "Caddyfile", config, "github.com/acme/app", c.ref, c.action, gitgw.Caller{Session: "s1", Agent: "ada", Workspace: "w"})
			if err != nil || status != c.status {
				t.Errorf("status %d, want %d, %v\n%s", status, c.status, err, &out)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
			asked := h.asked.Load().(string)
			if (asked != "") != c.asked || c.asked && !strings.Contains(asked, `"session":"s1","agent":"ada","workspace":"w"`) {
				t.Errorf("asked %q", asked)
			}
		})
	}
	var out strings.Builder
	config := configWith(`, "rules": {"from": "http", "url": "unix//nonexistent/r.sock"}` + oneRepo)
	if status, err := check(caddyContext(t), &out, "Caddyfile", config, "github.com/acme/app", "agent/x", "create", gitgw.Caller{}); err != nil || status != exitDenied || !strings.Contains(out.String(), "the rule source cannot be reached") {
		t.Errorf("nobody there: %d %v\n%s", status, err, &out)
	}
	for raw, want := range map[string]string{
		`{"from": "http", "url": "http://192.0.2.1/"}`: "127.0.0.1",
		`{"from": "http"}`: "url is missing",
		`{"from": "nis"}`:  "gitgw.rules.nis",
		`{"from": "http", "url": "unix//x", "wait": 1}`: "wait",
	} {
		if _, err := check(caddyContext(t), &out, "Caddyfile", configWith(`, "rules": `+raw+oneRepo), "github.com/acme/app", "main", "create", gitgw.Caller{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestCheckSaysWhyAnAnswerIsNone: git is told that there is none, who sets the gateway up
// is told why.
func TestCheckSaysWhyAnAnswerIsNone(t *testing.T) {
	for name, c := range map[string]struct {
		status        int
		kind, body    string
		reason, cause string
	}{
		"unknown verdict": {200, "application/json", `{"version":1,"updates":[{"ref":"refs/heads/agent/x","verdict":"push"}]}`, "gave no usable answer", `cause: verdict on "refs/heads/agent/x" is "push", want allow, ask or deny`},
		"unknown field":   {200, "application/json", `{"version":1,"updates":[],"until":1}`, "gave no usable answer", `unknown field "until"`},
		"another version": {200, "application/json", `{"version":2,"updates":[]}`, "gave no usable answer", "cause: version is 2, want 1"},
		"no verdict":      {200, "application/json", `{"version":1,"updates":[]}`, "gave no usable answer", `no verdict on "refs/heads/agent/x"`},
		"not JSON":        {200, "text/html", `<p>`, "gave no usable answer", "cause: not application/json"},
		"a status":        {503, "application/json", `{}`, "answered 503", ""},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer srv.Close()
			var out strings.Builder
			status, err := check(caddyContext(t), &out, "Caddyfile", configWith(fmt.Sprintf(`, "rules": {"from": "http", "url": %q}`, srv.URL)+oneRepo), "github.com/acme/app", "agent/x", "create", gitgw.Caller{})
			if err != nil || status != exitDenied || !strings.Contains(out.String(), c.reason) || !strings.Contains(out.String(), c.cause) {
				t.Errorf("status %d, %v\n%s\nwant %s, %s", status, err, &out, c.reason, c.cause)
			}
		})
	}
	var out strings.Builder
	_, err := check(caddyContext(t), &out, "Caddyfile", configWith(`, "rules": {"from": "http", "url": "unix//nonexistent/r.sock"}`+oneRepo), "github.com/acme/app", "agent/x", "create", gitgw.Caller{})
	if err != nil || !strings.Contains(out.String(), "/nonexistent/r.sock: connect: no such file") {
		t.Errorf("%v\n%s", err, &out)
	}
	_, err = check(caddyContext(t), &out, "Caddyfile", configWith(`, "places": {"rules": "Caddyfile:12"}, "rules": {"from": "http", "url": "unix//{env.POSTERN_TEST_NOT_SET}"}`+oneRepo), "github.com/acme/app", "agent/x", "create", gitgw.Caller{})
	if err == nil || !strings.Contains(err.Error(), "Caddyfile:12: load rules") {
		t.Errorf("%v", err)
	}
}

func TestRulesAndApproversInTheCaddyfile(t *testing.T) {
	for text, want := range map[string]string{
		"rules http unix//run/cc/rules.sock":                      `{"from":"http","url":"unix//run/cc/rules.sock"}`,
		"rules http http://127.0.0.1:7000/r {\n timeout 500ms\n}": `{"from":"http","timeout":500000000,"url":"http://127.0.0.1:7000/r"}`,
		"approver queue {\n timeout 1m\n remember 5m\n}":          `{"by":"queue","remember":300000000000,"timeout":60000000000}`,
		"approver http unix//a.sock {\n remember 5m\n}":           `{"by":"http","remember":300000000000,"url":"unix//a.sock"}`,
		"rules":                                                       "wrong argument count",
		"rules http":                                                  "wrong argument count",
		"rules nis x":                                                 `unknown rules "nis"; want http`,
		"rules http https://127.0.0.1/":                               "unix//PATH",
		"rules http http://example.org/":                              "unix//PATH",
		"rules http unix//a\nrules http unix//b":                      "rules is given twice",
		"rules http unix//a {\n timeout 0s\n}":                        "not a positive time",
		"rules http unix//a {\n timeout soon\n}":                      "timeout",
		"rules http unix//a {\n remember 1m\n}":                       `unrecognized http option "remember"`,
		"approver queue {\n remember -1m\n}":                          "not a positive time",
		"approver queue {\n remember 1m\n remember 2m\n}":             "remember is given twice",
		"approver http http://127.0.0.1:1/ {\n wait 1m\n}":            "want remember or timeout",
		"rules http unix//a b":                                        "wrong argument count",
		"approver queue here":                                         "wrong argument count",
		"rules http {env.POSTERN_NO_SUCH}":                            "unix//PATH",
		"rules http unix//a {\n timeout 1s\n timeout 1s\n}":           "timeout is given twice",
		"rules http unix//a {\n}\napprover queue\nforge github.com\n": `{"from":"http","url":"unix//a"}`,
	} {
		var h Handler
		err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("git_gateway {\n" + text + "\n}"))
		got := string(h.RulesRaw)
		if h.RulesRaw == nil {
			got = string(h.ApproverRaw)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || (err == nil) != strings.HasPrefix(want, "{") {
			t.Errorf("%s\ngives %s, want %s", text, got, want)
		}
	}
}
