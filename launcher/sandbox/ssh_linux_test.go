package sandbox

import (
	"os/exec"
	"strings"
	"testing"
)

// What ssh makes of the configuration inside, whatever the host's says.
func TestSSHFindsTheProxy(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skipf("SKIPPED, NOT PASSED: %v", err)
	}
	w := newWorld(t)
	for host, want := range map[string]string{"example.com": InnerExe + " connect %h %p", "localhost": "", "127.0.0.1": "", "::1": ""} {
		out := sandboxed(t, w.profile(), "ssh", "-G", host)
		got := map[string]string{}
		for line := range strings.Lines(out.stdout) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			got[name] = value
		}
		if proxy := got["proxycommand"]; proxy != want && (want != "" || proxy != "none") {
			t.Errorf("%s: ProxyCommand %q, want %q; %s", host, proxy, want, out.stderr)
		}
		if want != "" && (got["stricthostkeychecking"] != "accept-new" || got["controlmaster"] != "false") {
			t.Errorf("%s: StrictHostKeyChecking %s, ControlMaster %s", host, got["stricthostkeychecking"], got["controlmaster"])
		}
	}
}
