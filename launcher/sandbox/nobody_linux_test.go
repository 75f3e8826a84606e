package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAsNobody runs the tests of this package again as a user without any rights,
// when root runs them: that is who runs sandboxes, and root is treated differently
// by the kernel in many places.
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
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o711))
	home := filepath.Join(dir, "home")
	must(t, os.Mkdir(home, 0o700))
	must(t, os.Chown(home, nobody, nobody))
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	exe := filepath.Join(dir, "sandbox.test")
	must(t, os.WriteFile(exe, self, 0o755))

	cmd := exec.Command(exe, "-test.timeout=15m", "-test.skip=TestAsNobody|Fuzz", "-test.v="+verbose())
	cmd.Dir = home
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
}

func verbose() string {
	if testing.Verbose() {
		return "true"
	}
	return "false"
}
