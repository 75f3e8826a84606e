package sandbox

import (
	"os"
	"strings"
	"testing"
)

// TestHostDevicesStay: whoever starts a run, its command changes nothing of the nodes in
// /dev, which are the host's. Each is tried with the mode that it has, so that a failure
// does no harm here.
func TestHostDevicesStay(t *testing.T) {
	w := newWorld(t)
	refusal := "Operation not permitted" // not the owner
	if ownsDevices() {
		refusal = "Read-only file system"
	}
	for _, path := range hostDevices {
		before, err := os.Stat(path)
		if err != nil {
			t.Logf("this host has no %s", path)
			continue
		}
		out := script(t, w.profile(), `chmod "$(stat -c %a `+path+`)" `+path+` 2>&1; touch -c `+path+` 2>&1; head -c 1 `+path+` > /tmp/x; echo x > `+path+` && echo written`)
		if !strings.Contains(out.stdout, refusal) {
			t.Errorf("chmod %s: %q, want %q", path, out.stdout, refusal)
		}
		if path == "/dev/null" && !strings.Contains(out.stdout, "written") {
			t.Errorf("%s takes nothing: %q", path, out.stdout)
		}
		after, err := os.Stat(path)
		if err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s was %s and is %v, %v", path, before.Mode(), after, err)
		}
	}
	home := tempDir(t)
	if out := inTerminal(t, &Terminal{Home: home, Dir: home, RunDir: home + "/run"}, `chmod "$(stat -c %a /dev/null)" /dev/null`); !strings.Contains(out, refusal) {
		t.Errorf("in a terminal: chmod /dev/null: %q, want %q", out, refusal)
	}
}
