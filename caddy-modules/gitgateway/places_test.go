package gitgateway_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// What shows only as the configuration is provisioned is told with the line of the
// Caddyfile where it was asked for, which ends in `# !`.
func TestLaterFaultsHavePlaces(t *testing.T) {
	run, err := os.MkdirTemp("/tmp", "postern-test-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	t.Setenv("POSTERN_RUN", run)
	t.Setenv("POSTERN_TEST_TOKEN", "same")
	global, site := "egress {\nlocal git.internal\n}", "bind sandbox/git"
	app := func(lines string) string { return "git_gateway {\nlfs on\n" + lines + "\n}" }
	for _, c := range []struct{ name, global, site, gateway, want string }{
		{"no key file", global, site, app("token github_app 1 { # !\nkey_file /nonexistent/app.pem\n}"), "read app key: open /nonexistent/app.pem"},
		{"a key file that is none", global, site, app("token github_app 1 { # !\nkey_file /etc/passwd\n}"), "no PEM block"},
		{"a key file by an empty variable", global, site, app("token github_app 1 { # !\nkey_file {env.POSTERN_TEST_NOT_SET}\n}"), "{env.POSTERN_TEST_NOT_SET} is empty"},
		{"an id by an empty variable", global, site, app("token github_app {env.POSTERN_TEST_NOT_SET} { # !\nkey_file /etc/passwd\n}"), "resolve app_id"},
		{"an app of no forge", global, site, app("token github_app 1 { # !\nkey_file /x\nforge ghe.example\n}"), `no forge "ghe.example"`},
		{"an app of one of two", global, site, app("forge a.example\nforge b.example\ntoken github_app 1 { # !\nkey_file /x\n}"), "several forges"},
		{"a token by an empty variable", global, site, app("token static { # !\nwrite {env.POSTERN_TEST_NOT_SET}\n}"), "resolve write"},
		{"a token by a missing file", global, site, app("token static { # !\nwrite {file./nonexistent}\n}"), "file that cannot be read"},
		{"one token for both", global, site, app("token static { # !\nwrite same\nread {env.POSTERN_TEST_TOKEN}\n}"), "must not have it"},
		{"no program", global, site, app("token command /nonexistent/mint # !"), "find the program"},
		{"rules by an empty variable", global, site, app("rules http unix//{env.POSTERN_TEST_NOT_SET}/r.sock # !"), "resolve url"},
		{"an approver by an empty variable", global, site, app("approver http http://127.0.0.1:1/{env.POSTERN_TEST_NOT_SET} # !"), "resolve url"},
		{"no bind", global, "", "git_gateway { # !\nlfs on\n}", "begin its site with `bind sandbox/git`"},
		{"another bind", global, "bind 127.0.0.1", "git_gateway { # !\nlfs on\n}", "begin its site with `bind sandbox/git`"},
		{"a bind to no local host", global, "bind sandbox/gut", "git_gateway { # !\nlfs on\n}", "bind it to sandbox/git"},
		{"no sessions", "", site, "git_gateway { # !\nlfs on\n}", "add an egress block"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := fmt.Sprintf("{\nadmin unix/%s/admin.sock\nauto_https off\n%s\n}\nhttp://git.internal {\n%s\n%s\n}\n", run, c.global, c.site, c.gateway)
			line := 0
			for i, l := range strings.Split(text, "\n") {
				if strings.HasSuffix(l, "# !") {
					line = i + 1
				}
			}
			config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
			if err != nil {
				t.Fatal(err)
			}
			parsed := new(caddy.Config)
			if err := caddy.StrictUnmarshalJSON(config, parsed); err != nil {
				t.Fatal(err)
			}
			err = caddy.Validate(parsed)
			if err == nil || strings.Count(err.Error(), "Caddyfile:") != 1 || !strings.Contains(err.Error(), fmt.Sprintf("Caddyfile:%d: ", line)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant line %d, %s", err, line, c.want)
			}
		})
	}
}
