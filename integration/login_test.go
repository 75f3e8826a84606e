package integration_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
)

// TestLoginWithCurl: a session that asks for credentials serves who has them as any other
// session does, and who has not not at all, by the words that real clients understand.
func TestLoginWithCurl(t *testing.T) {
	r := newReloads(t)
	got, err := control(t, r.run, http.MethodPut, "/v1/sessions/login", `{"listen": {"network": "tcp", "credentials": true}}`)
	if err != nil || got.status != http.StatusCreated {
		t.Fatalf("open a session: %+v %v", got, err)
	}
	var a lease.Answer
	if err := json.Unmarshal([]byte(got.body), &a); err != nil || a.Login == nil {
		t.Fatalf("no login in %s (%v)", got.body, err)
	}
	ours := a.Login.Userinfo().String() + "@"
	theirs := "postern:" + strings.Repeat("A", 26) + "@"
	curl := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "curl", append([]string{"-q", "-sS", "--max-time", "20", "--http0.9"}, args...)...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
		out, _ := cmd.CombinedOutput() // what it says is what counts: the far end only echoes
		return string(out)
	}
	status := func(login, target string) string {
		t.Helper()
		return curl("-o", "/dev/null", "-w", "[%{http_connect}]", "-x", "http://"+login+a.Session.HTTP, "https://"+target+"/")
	}
	for _, c := range []struct{ name, login, target, want string }{
		{"allowed", ours, r.kept, "[200]"},
		{"denied stays 403", ours, r.added, "[403]"},
		{"without", "", r.kept, "[407]"},
		{"wrong", theirs, r.kept, "[407]"},
	} {
		if got := status(c.login, c.target); !strings.Contains(got, c.want) {
			t.Errorf("%s: curl says %q", c.name, got)
		}
	}
	if got := curl("-x", "http://"+a.Session.HTTP, "--proxy-anyauth", "--proxy-user", strings.TrimSuffix(ours, "@"), "-o", "/dev/null", "-w", "[%{http_connect}]", "https://"+r.kept+"/"); !strings.Contains(got, "[200]") {
		t.Errorf("asked for by the proxy: curl says %q", got)
	}
	if got := curl("-x", "socks5h://"+ours+a.Session.SOCKS, "http://"+r.kept+"/x"); got != "echo" {
		t.Errorf("SOCKS, allowed: curl says %q", got)
	}
	for name, proxy := range map[string]string{"without": "", "wrong": theirs} {
		if got := curl("-x", "socks5h://"+proxy+a.Session.SOCKS, "http://"+r.kept+"/x"); !strings.HasPrefix(got, "curl: (97)") {
			t.Errorf("SOCKS, %s: curl says %q", name, got)
		}
	}
}
