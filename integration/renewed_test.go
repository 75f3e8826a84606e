package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testRenewedToken runs git in a sandbox for longer than the token lives that the
// run was given: git goes on with another one, which stands in no environment, no
// argument and no file, and neither outlives the run.
func testRenewedToken(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	launcher := buildLauncher(t)
	run, tree := runDir(t), t.TempDir()
	forge := newForge(t)
	startAppliance(t, caddy, run, gatewayConfig(t, run, forge))
	// By the clock of this forge tokens live for an hour, by ours for eight seconds.
	forge.Advance(-time.Hour + 8*time.Second)
	const script = `
		fill() { printf 'protocol=https\nhost=github.com\n\n' | git credential fill | sed -n s/^password=//p; }
		test "$(fill)" = "$GH_TOKEN" || echo another at once
		n=0
		while now=$(fill); test "$now" = "$GH_TOKEN" -a $n -lt 200; do n=$((n+1)); sleep 0.1; done
		printf %s "$now" >now
		cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' >seen
		git config --list >>seen
		echo "$GH_TOKEN" >first
	`
	cmd := exec.CommandContext(t.Context(), launcher, "run", "--quiet", "--repo", "github.com/acme/app", "--", "sh", "-c", script)
	cmd.Dir = tree
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "POSTERN_RUN=" + run, "LANG=C"}
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Fatalf("run: %v\n%s", err, out)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	first, now, seen := read("first"), read("now"), read("seen")
	if !strings.HasPrefix(now, "ghs_") || now == first {
		t.Errorf("git has the token of the start still, or none")
	}
	if !strings.Contains(seen, first) || strings.Contains(seen, now) {
		t.Errorf("the renewed token stands in an environment, an argument or the configuration")
	}
	// The appliance gives them back when the run has ended, which its launcher does not wait for.
	for until := time.Now().Add(10 * time.Second); len(forge.Live()) > 0 && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	for _, value := range []string{first, now} {
		if made, ok := forge.Token(value); !ok || made.CanWrite() || !made.Revoked() {
			t.Errorf("a token of the run: known %v, writes %v, revoked %v", ok, made.CanWrite(), made.Revoked())
		}
	}
	if live := forge.Live(); len(live) != 0 {
		t.Errorf("%d tokens live", len(live))
	}
}
