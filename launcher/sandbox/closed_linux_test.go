package sandbox

import (
	"os"
	"testing"
)

// Folders that an earlier run has closed are not there, and keep nothing from starting.
func TestClosedFoldersAreHidden(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	w := newWorld(t)
	repository(t, w.tree)
	for _, dir := range []string{"noread", "sub/.git"} {
		write(t, w.tree+"/"+dir+"/config", "")
		must(t, os.Chmod(w.tree+"/"+dir, 0))
		t.Cleanup(func() { _ = os.Chmod(w.tree+"/"+dir, 0o700) })
	}
	out := script(t, w.profile(), "touch x && git status --porcelain -uno 2>/dev/null; for d in noread sub/.git; do chmod 700 $d; echo evil > $d/config; rmdir $d; mv -T $d $d.2; done 2>/dev/null; ls")
	if out.stdout != "file\nnoread\nsub\nx\n" {
		t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
	}
	for _, dir := range []string{"noread", "sub/.git"} {
		must(t, os.Chmod(w.tree+"/"+dir, 0o700))
		if got := read(t, w.tree+"/"+dir+"/config"); got != "" {
			t.Errorf("%s/config is now %q", dir, got)
		}
	}
}
