package gitgateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "postern/caddy-modules"
	"postern/caddy-modules/session/lease"
	"postern/integration/fakegithub"
)

// gatewayTest is a Caddy in this process with a git gateway in front of a forge
// on loopback, one session, and a clone of its repository.
type gatewayTest struct {
	run     string
	forge   *fakegithub.Server
	key     string // file with the app's key
	session lease.Answer
	clone   string
}

func newGatewayTest(t *testing.T, gateway string) *gatewayTest {
	t.Helper()
	run, err := os.MkdirTemp("/tmp", "postern-test-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	t.Setenv("POSTERN_RUN", run)
	forge, err := fakegithub.New(fakegithub.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := forge.Close(); err != nil {
			t.Error(err)
		}
	})
	g := &gatewayTest{run: run, forge: forge, key: filepath.Join(run, "app.pem"), clone: filepath.Join(t.TempDir(), "clone")}
	for _, name := range []string{"acme/app", "acme/linked", "acme/other"} {
		if err := forge.AddRepo(name); err != nil {
			t.Fatal(err)
		}
		if _, err := forge.Commit(name, "main", "begin", map[string]string{"README": name}); err != nil {
			t.Fatal(err)
		}
	}
	forge.Install(fakegithub.Installation{Account: "acme", Repos: []string{"acme/app", "acme/linked"}})
	if err := os.WriteFile(g.key, forge.KeyPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := g.load(g.app() + gateway); err != nil {
		t.Fatal(err)
	}
	status, body := g.control(t, http.MethodPut, "/v1/sessions/push", `{"id": "push", "agent": "ada", "repository": "github.com/acme/app",
		"networkEnabled": false, "linkedRepositories": ["github.com/acme/linked"], "listen": {"network": "tcp"}}`)
	if status != http.StatusCreated {
		t.Fatalf("open a session: %d %s", status, body)
	}
	if err := json.Unmarshal([]byte(body), &g.session); err != nil {
		t.Fatal(err)
	}
	if out, err := g.git(t, "", "clone", "-q", g.dirOf(t, "acme/app"), g.clone); err != nil {
		t.Fatalf("clone: %v\n%s", err, out)
	}
	g.commit(t, "something to push")
	return g
}

// app is the token of the forge's app.
func (g *gatewayTest) app() string {
	return fmt.Sprintf(`"token": {"from": "github_app", "app_id": "%d", "key_file": %q}, `, g.forge.AppID(), g.key)
}

// load loads a configuration whose gateway has the given settings.
func (g *gatewayTest) load(gateway string) error {
	return g.loadServers(fmt.Sprintf(`"git": %s`, g.server("sandbox/git", gateway)))
}

func (g *gatewayTest) server(listen, gateway string) string {
	return fmt.Sprintf(`{"listen": [%q], "automatic_https": {"disable": true}, "routes": [{"handle": [{"handler": "git_gateway",
		"forges": [{"host": "github.com", "api": %q, "git": %q}], %s}]}]}`, listen, g.forge.APIURL(), g.forge.URL(), gateway)
}

func (g *gatewayTest) loadServers(servers string) error {
	return caddy.Load(fmt.Appendf(nil, `{
		"admin": {"listen": "unix/%s/admin.sock|0600", "config": {"persist": false}},
		"logging": {"logs": {"default": {"level": "FATAL"}}},
		"apps": {
			"egress": {"policies": {"agent": {}}, "local_hosts": ["git.internal", "more.internal"]},
			"http": {"servers": {%s}}
		}
	}`, g.run, servers), true)
}

func (g *gatewayTest) dirOf(t *testing.T, repo string) string {
	t.Helper()
	dir, err := g.forge.Dir(repo)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// git runs git in a folder with nothing of this machine's configuration.
func (g *gatewayTest) git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	proxy := "http.http://git.internal/.proxy=http://" + g.session.Session.HTTP
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", proxy, "-c", "user.name=ada", "-c", "user.email=ada@example.com", "-c", "safe.directory=*"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + g.run, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g *gatewayTest) commit(t *testing.T, message string) {
	t.Helper()
	if out, err := g.git(t, g.clone, "commit", "-q", "--allow-empty", "-m", message); err != nil {
		t.Fatalf("commit: %v\n%s", err, out)
	}
}

// push pushes the clone's HEAD to a ref of a repository, through the gateway.
func (g *gatewayTest) push(t *testing.T, repo, ref string) (string, error) {
	t.Helper()
	return g.git(t, g.clone, "push", "http://git.internal/github.com/"+repo+".git", "HEAD:refs/heads/"+ref)
}

func (g *gatewayTest) control(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	resp, err := g.request(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func (g *gatewayTest) request(ctx context.Context, method, path, body string) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(g.run, "control.sock"))
	}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://postern"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// stream follows an NDJSON stream of the control API until the test ends.
func (g *gatewayTest) stream(t *testing.T, path string) <-chan map[string]any {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := g.request(ctx, http.MethodGet, path, "")
	if err != nil || resp.StatusCode != http.StatusOK {
		cancel()
		t.Fatalf("GET %s: %v %v", path, resp, err)
	}
	lines := make(chan map[string]any, 64)
	go func() {
		defer resp.Body.Close()
		for scanner := bufio.NewScanner(resp.Body); scanner.Scan(); {
			var v map[string]any
			if json.Unmarshal(scanner.Bytes(), &v) == nil {
				lines <- v
			}
		}
	}()
	t.Cleanup(cancel)
	return lines
}

// next waits for a line with the given type.
func next(t *testing.T, lines <-chan map[string]any, kind string) map[string]any {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case v := <-lines:
			if v["type"] == kind {
				return v
			}
		case <-timeout:
			t.Fatalf("no %q came", kind)
		}
	}
}

// landed reports whether the branch that these tests push is on the forge.
func (g *gatewayTest) landed(t *testing.T, repo string) bool {
	t.Helper()
	refs, err := g.forge.Refs(repo)
	if err != nil {
		t.Fatal(err)
	}
	_, ok := refs["refs/heads/agent/x"]
	return ok
}

const agentRules = `"repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "push", "refs": ["agent/**"]}, {"verdict": "ask", "refs": ["main"]}]}]`

// TestPush is the way of a push: to an agent's branch it lands, with a token that
// was made for it and is revoked after it; to another it is refused as git
// refuses. The session has its network off: the gateway is not egress.
func TestPush(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	events := g.stream(t, "/v1/events?session=push")

	if out, err := g.push(t, "acme/app", "agent/x"); err != nil || !strings.Contains(out, "[new branch]") {
		t.Fatalf("push to agent/x: %v\n%s", err, out)
	}
	if !g.landed(t, "acme/app") {
		t.Error("the branch is not there")
	}
	write := g.forge.WriteTokens()
	if len(write) != 1 || !write[0].Revoked() || len(write[0].Repositories) != 1 || write[0].Repositories[0] != "acme/app" {
		t.Errorf("write tokens: %+v", write)
	}
	e := next(t, events, lease.EventPush)
	if e["outcome"] != "accepted" || e["repository"] != "github.com/acme/app" || e["agent"] != "ada" || e["session"] != "push" {
		t.Errorf("event: %v", e)
	}
	if text := fmt.Sprint(e); strings.Contains(text, write[0].Value) {
		t.Error("the event tells the token")
	}

	out, err := g.push(t, "acme/app", "main")
	if err == nil || !strings.Contains(out, "[remote rejected] HEAD -> main (Control Center policy: ") {
		t.Errorf("push to main: %v\n%s", err, out)
	}
	out, err = g.push(t, "acme/app", "feature")
	if err == nil || !strings.Contains(out, "[remote rejected] HEAD -> feature (Control Center policy: ") {
		t.Errorf("push to feature: %v\n%s", err, out)
	}
	if got := next(t, events, lease.EventPush)["outcome"]; got != "refused" {
		t.Errorf("outcome of a refusal: %v", got)
	}
	if n := len(g.forge.WriteTokens()); n != 1 {
		t.Errorf("%d write tokens: a refused push made one", n)
	}

	// Linked to the workspace, and not.
	if out, err := g.push(t, "acme/linked", "agent/x"); err != nil {
		t.Errorf("push to a linked repository: %v\n%s", err, out)
	}
	if out, err := g.push(t, "acme/other", "agent/x"); err == nil || g.landed(t, "acme/other") {
		t.Errorf("push to a repository that is not the session's: %v\n%s", err, out)
	}

	// The session's own token cannot push, and goes with the session.
	if g.session.ReadToken == "" || g.session.Git.URL != "http://git.internal/" || len(g.session.Git.Forges) != 1 {
		t.Errorf("the session was told %+v", g.session.Git)
	}
	read, ok := g.forge.Token(g.session.ReadToken)
	if !ok || read.CanWrite() || read.Revoked() {
		t.Errorf("the session's token: %+v", read)
	}
	if status, body := g.control(t, http.MethodDelete, "/v1/sessions/push", ""); status != http.StatusNoContent {
		t.Fatalf("close the session: %d %s", status, body)
	}
	if live := g.forge.Live(); len(live) != 0 {
		t.Errorf("tokens outlived the session: %+v", live)
	}
}

// TestAskOverAReload asks on the control socket, reloads while the push waits,
// and lets the answer arrive at the new configuration's door: the push ends as it
// began.
func TestAskOverAReload(t *testing.T) {
	queue := `"approver": {"by": "queue"}, ` + agentRules
	g := newGatewayTest(t, queue)
	if out, err := g.push(t, "acme/app", "main"); err == nil || !strings.Contains(out, "[remote rejected]") {
		t.Fatalf("a push that asks while nobody listens: %v\n%s", err, out)
	}
	questions := g.stream(t, "/v1/approvals/events")
	for _, c := range []struct {
		name, answer, want string
		lands              bool
	}{
		{"no", `{"allowed": false, "by": "bo", "reason": "not on a Friday"}`, "not on a Friday", false},
		{"yes", `{"allowed": true, "by": "bo"}`, "main", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g.commit(t, c.name)
			type result struct {
				out string
				err error
			}
			pushed := make(chan result, 1)
			go func() {
				out, err := g.push(t, "acme/app", "main")
				pushed <- result{out, err}
			}()
			id, _ := next(t, questions, "asked")["id"].(string)
			if err := g.load(g.app() + queue); err != nil {
				t.Fatal(err)
			}
			if status, body := g.control(t, http.MethodGet, "/v1/approvals", ""); status != http.StatusOK || !strings.Contains(body, id) {
				t.Errorf("open questions: %d %s", status, body)
			}
			for path, bad := range map[string]string{id: `{"alowed": true}`, "nope": c.answer} {
				if status, body := g.control(t, http.MethodPost, "/v1/approvals/"+path, bad); status != http.StatusBadRequest && status != http.StatusNotFound {
					t.Errorf("answer %s to %s: %d %s", bad, path, status, body)
				}
			}
			if status, body := g.control(t, http.MethodPost, "/v1/approvals/"+id, c.answer); status != http.StatusNoContent {
				t.Fatalf("answer: %d %s", status, body)
			}
			r := <-pushed
			if (r.err == nil) != c.lands || !strings.Contains(r.out, c.want) {
				t.Errorf("push: %v\n%s", r.err, r.out)
			}
		})
	}
	for _, token := range g.forge.WriteTokens() {
		if !token.Revoked() {
			t.Errorf("a write token is alive: %+v", token)
		}
	}
}

// TestNoSession serves the gateway where anybody may come, alone and beside the
// network of sessions. Neither is taken, and the gateway that ran still takes pushes.
func TestNoSession(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	for _, listen := range []string{`"127.0.0.1:0"`, `"sandbox/git:80", ":8080"`, `"unix//tmp/git.sock"`} {
		server := strings.Replace(g.server("sandbox/other", agentRules), `"sandbox/other"`, listen, 1)
		err := g.loadServers(fmt.Sprintf(`"git": %s, "open": %s`, g.server("sandbox/git", g.app()+agentRules), server))
		if err == nil || !strings.Contains(err.Error(), "bind sandbox/git") {
			t.Errorf("listen %s: %v", listen, err)
		}
	}
	if out, err := g.push(t, "acme/app", "agent/x"); err != nil {
		t.Errorf("the session's push: %v\n%s", err, out)
	}
}

// TestBadReload loads gateways that cannot work. Each is refused, and the one
// that ran before still takes pushes.
func TestBadReload(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	t.Setenv("POSTERN_TEST_A", "same")
	t.Setenv("POSTERN_TEST_B", "same")
	static := `"token": {"from": "static", "write": %q, "read": %q}, ` + agentRules
	for _, c := range []struct{ name, gateway, want string }{
		{"missing app key", `"token": {"from": "github_app", "app_id": "1", "key_file": "/nonexistent/app.pem"}, ` + agentRules, "read app key"},
		{"app key that is none", `"token": {"from": "github_app", "app_id": "1", "key_file": "/etc/passwd"}, ` + agentRules, "no PEM block"},
		{"app of another forge", `"token": {"from": "github_app", "app_id": "1", "key_file": "/x", "forge": "ghe.example"}, ` + agentRules, `no forge "ghe.example"`},
		{"unknown field", `"tokn": {}, ` + agentRules, "tokn"},
		{"unknown minter", `"token": {"from": "vault"}, ` + agentRules, "gitgw.minters.vault"},
		{"unknown approver", `"approver": {"by": "slack"}, ` + agentRules, "gitgw.approvers.slack"},
		{"token of no program", `"token": {"from": "command", "command": ["/nonexistent/mint"]}, ` + agentRules, "find the program"},
		{"rules of an unknown forge", `"repos": [{"name": "gitlab.com/acme/app"}]`, "repos[0]: the rules of gitlab.com/acme/app are for a forge that is not configured"},
		{"approver elsewhere", `"approver": {"by": "http", "url": "http://192.0.2.1/"}, ` + agentRules, "127.0.0.1"},
		{"approver that takes its time", `"approver": {"by": "queue", "timeout": 3600000000001}, ` + agentRules, "timeout 1h0m0.000000001s is longer than"},
		{"bad pattern", `"repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "push", "refs": ["a**"]}]}]`, "repos[0].rules[0]"},
		{"bad verdict", `"repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "allow", "refs": ["a"]}]}]`, "allow"},
		{"action among the refs", `"repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "push", "refs": ["a", "delete"]}]}]`, "refs/heads/delete"},
		{"unknown action", `"repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "push", "refs": ["a"], "actions": ["forced"]}]}]`, "force"},
		{"repository twice", `"repos": [{"name": "github.com/acme/app"}, {"name": "github.com/ACME/app.git"}]`, "repos[1]"},
		{"prefix with a line break", `"prefix": "a\nb", ` + agentRules, "control character"},
		{"lfs that is no word", `"lfs": "maybe", ` + agentRules, `lfs "maybe" is neither on nor off`},
		{"one token for both", fmt.Sprintf(static, "same", "same"), "must not have it"},
		{"token from nowhere", fmt.Sprintf(static, "{env.POSTERN_TEST_NOT_SET}", ""), "resolve write"},
		{"both tokens from one place", fmt.Sprintf(static, "{env.POSTERN_TEST_A}", "{env.POSTERN_TEST_B}"), "must not have it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := g.load(c.gateway)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("loading gives %v, want %q", err, c.want)
			}
		})
	}
	t.Run("bound to no local host", func(t *testing.T) {
		if err := g.loadServers(fmt.Sprintf(`"git": %s`, g.server("sandbox/gut", agentRules))); err == nil || !strings.Contains(err.Error(), "bind it to sandbox/git or sandbox/more") {
			t.Errorf("loading gives %v", err)
		}
	})
	t.Run("two gateways with a token", func(t *testing.T) {
		two := fmt.Sprintf(`"git": %s, "more": %s`, g.server("sandbox/git", g.app()+agentRules), g.server("sandbox/more", g.app()+agentRules))
		if err := g.loadServers(two); err == nil || !strings.Contains(err.Error(), "another git_gateway has a token") {
			t.Errorf("loading gives %v", err)
		}
	})
	t.Run("without the app", func(t *testing.T) {
		bare := fmt.Appendf(nil, `{"admin": {"listen": "unix/%s/admin.sock|0600", "config": {"persist": false}}, "apps": {"http": {"servers": {"git": %s}}}}`,
			g.run, g.server("sandbox/git", agentRules))
		if err := caddy.Load(bare, true); err == nil || !strings.Contains(err.Error(), "egress") {
			t.Errorf("loading gives %v", err)
		}
	})
	if out, err := g.push(t, "acme/app", "agent/after"); err != nil {
		t.Errorf("push after all that: %v\n%s", err, out)
	}
}
