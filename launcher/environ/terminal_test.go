package environ

import (
	"slices"
	"strings"
	"testing"
)

// SPEC 53: no read token, no gateway; nor what leads to what the profile hides.
func TestTerminal(t *testing.T) {
	const secret = "not-for-a-terminal"
	var host []string
	for _, name := range []string{
		"GH_TOKEN", "GITHUB_TOKEN", "gh_token", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_GLOBAL", "POSTERN_RUN", "POSTERN_SOCKS",
		"TICKETING_API_KEY", "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "AWS_SECRET_ACCESS_KEY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "TMUX", "TMPDIR", "HOME",
	} {
		host = append(host, name+"="+secret)
	}
	kept := []string{"PATH=/bin", "TERM=xterm", "LANG=C", "EDITOR=vi", "HTTPS_PROXY=http://proxy.example:3128", "PS1=$ ", "A=b=c"}
	out := Terminal(append(host, append(kept, "broken")...), "/home/u", "/home/u/src", "/run/user/1")
	if text := strings.Join(out, "\n"); strings.Contains(text, secret) || strings.Contains(text, "broken") {
		t.Errorf("got\n%s", text)
	}
	for _, kv := range append(kept, "HOME=/home/u", "PWD=/home/u/src", "XDG_RUNTIME_DIR=/run/user/1") {
		if !slices.Contains(out, kv) {
			t.Errorf("%s is missing", kv)
		}
	}
}
