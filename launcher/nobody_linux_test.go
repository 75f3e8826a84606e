package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAsNobody runs the tests of this package again as a user without any rights,
// when root runs them: that is who runs sandboxes.
func TestAsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an unprivileged user already")
	}
	needBwrap(t)
	if testing.Short() {
		t.Skip("slow")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "nobody") //nolint:usetesting // another user must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	home, exe := filepath.Join(dir, "h"), filepath.Join(dir, "launcher.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chmod(dir, 0o711), os.Mkdir(home, 0o700), os.Chown(home, nobody, nobody), os.WriteFile(exe, self, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(exe, "-test.timeout=15m", "-test.skip=^(TestAsNobody|TestDocs)$") // the text lies elsewhere
	cmd.Dir = home
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
}
