package gitgateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"postern/gitgw"
)

// caddyContext is one in which modules can be loaded.
func caddyContext(t *testing.T) caddy.Context {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	return ctx
}

// configWith wraps gateways the way adapters do: in subroutes, at any depth.
func configWith(gateways ...string) []byte {
	routes := make([]string, 0, len(gateways))
	for _, g := range gateways {
		routes = append(routes, fmt.Sprintf(`{"handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": "headers"}, {"handler": "git_gateway"%s}]}]}]}`, g))
	}
	return fmt.Appendf(nil, `{"apps": {"http": {"servers": {"s": {"routes": [%s]}}}, "other": {"handler": "git_gateway", "bad": true}}}`, strings.Join(routes, ", "))
}

const (
	oneRepo = `, "repos": [{"name": "github.com/acme/app", "rules": [
		{"verdict": "push", "refs": ["agent/**"], "from": "Caddyfile:9"}, {"verdict": "ask", "refs": ["main"]}, {"verdict": "deny", "refs": ["agent/no"], "reason": "closed"}]}]`
	approver = `, "approver": {"by": "queue"}`
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, ref, action string
		gateways          []string
		status            int
		want              []string
	}{
		{"allowed", "agent/x", "create", []string{oneRepo}, 0, []string{"allow  create refs/heads/agent/x of github.com/acme/app", `rule "push agent/**"`, "Caddyfile:9", "token"}},
		{"denied by a rule", "agent/no", "update", []string{oneRepo}, exitDenied, []string{"deny   update", "repos[0].rules[2]", "closed"}},
		{"force needs its name", "agent/x", "force", []string{oneRepo}, exitDenied, []string{"deny   force refs/heads/agent/x", "force push refused", "push agent/** force"}},
		{"a tag that moves", "tag:v1", "update", []string{`, "repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "push", "refs": ["tag:*"]}]}]`}, exitDenied, []string{"force push refused"}},
		{"conditions", "x", "create", []string{`, "repos": [{"name": "github.com/acme/*", "max_refs": 3, "protect": [".github/workflows"], "rules": [{"verdict": "push", "refs": ["x"], "max_pack": 50000000, "secrets": "deny"}]}]`}, 0, []string{"at most 3 refs, a pack of at most 50 MB, no secrets, no change of .github/workflows"}},
		{"denied by none", "feature", "create", []string{oneRepo}, exitDenied, []string{"no rule allows"}},
		{"asks", "main", "update", []string{oneRepo + approver}, exitAsks, []string{"ask    update refs/heads/main"}},
		{"nobody to ask", "main", "update", []string{oneRepo}, exitDenied, []string{"no approver to ask"}},
		{"the strictest of two", "agent/x", "create", []string{oneRepo, ""}, exitDenied, []string{"allow  create", "deny   create"}},
		{"asked by one of two", "main", "create", []string{oneRepo + approver, `, "repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "push", "refs": ["main"]}]}]`}, exitAsks, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			status, err := check(caddyContext(t), &out, "Caddyfile", configWith(c.gateways...), "github.com/Acme/App.git", c.ref, c.action, gitgw.Caller{})
			if err != nil || status != c.status {
				t.Errorf("status %d, want %d, %v\n%s", status, c.status, err, &out)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
		})
	}
}

// A push to a forge that is not there is refused, and told from one that no rule names.
func TestCheckUnknownForge(t *testing.T) {
	for _, c := range []struct {
		name, repo, gateway, want string
	}{
		{"github alone", "gitlab.com/a/b", oneRepo, "unknown forge gitlab.com; known: github.com"},
		{"two of them", "gitlab.com/a/b", `, "forges": [{"host": "github.com"}, {"host": "ghe.example"}]` + oneRepo, "unknown forge gitlab.com; known: github.com, ghe.example"},
		{"github left out", "github.com/a/b", `, "forges": [{"host": "ghe.example"}]`, "unknown forge github.com; known: ghe.example"},
		{"with a rule source", "gitlab.com/a/b", `, "rules": {"from": "http", "url": "unix//nonexistent/r.sock"}`, "unknown forge gitlab.com; known: github.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			status, err := check(caddyContext(t), &out, "Caddyfile", configWith(c.gateway), c.repo, "main", "create", gitgw.Caller{})
			if err != nil || status != exitDenied || !strings.HasPrefix(out.String(), "deny   create refs/heads/main of "+c.repo) || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "no rule") {
				t.Errorf("status %d, %v\n%s\nwant %s", status, err, &out, c.want)
			}
		})
	}
}

func TestCheckHasNoAnswer(t *testing.T) {
	for _, c := range []struct{ name, config, repo, ref, action, want string }{
		{"no gateway", `{"apps": {"http": {"servers": {}}}}`, "github.com/acme/app", "main", "create", "no git_gateway"},
		{"no configuration", `{}`, "github.com/acme/app", "main", "create", "no git_gateway"},
		{"no object", `[]`, "github.com/acme/app", "main", "create", "decode configuration"},
		{"unknown field", string(configWith(`, "repo": []`)), "github.com/acme/app", "main", "create", "repo"},
		{"bad rule", string(configWith(`, "repos": [{"name": "*"}]`)), "github.com/acme/app", "main", "create", "repos[0]"},
		{"bad repository", string(configWith("")), "acme/app", "main", "create", "HOST/OWNER/NAME"},
		{"bad ref", string(configWith("")), "github.com/acme/app", "a..b", "create", "a..b"},
		{"pattern", string(configWith("")), "github.com/acme/app", "agent/*", "create", "not a pattern"},
		{"unknown forge", string(configWith(`, "repos": [{"name": "gitlab.com/acme/app", "from": "Caddyfile:7"}]`)), "github.com/acme/app", "main", "create", "Caddyfile:7: the rules of gitlab.com/acme/app are for a forge"},
		{"bad action", string(configWith("")), "github.com/acme/app", "main", "forced", "forced"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			_, err := check(caddyContext(t), &out, "Caddyfile", []byte(c.config), c.repo, c.ref, c.action, gitgw.Caller{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			// What the caller has mistyped is no fault of the file.
			if strings.HasPrefix(c.name, "bad ") && c.name != "bad rule" && strings.HasPrefix(err.Error(), "Caddyfile") {
				t.Errorf("blames the file: %v", err)
			}
			if out.Len() > 0 {
				t.Errorf("a verdict was printed: %s", &out)
			}
		})
	}
}

func TestFullRef(t *testing.T) {
	for text, want := range map[string]string{
		"main":           "refs/heads/main",
		"agent/x":        "refs/heads/agent/x",
		"tag:v1":         "refs/tags/v1",
		"refs/notes/x":   "refs/notes/x",
		"refs/heads/del": "refs/heads/del",
	} {
		if got, err := fullRef(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
