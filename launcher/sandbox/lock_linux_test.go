package sandbox

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stranger locks a directory, as everybody can who may read it.
func stranger(tb testing.TB, dir string) (leave func()) {
	tb.Helper()
	f, err := os.Open(dir)
	must(tb, err)
	must(tb, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	leave = func() { _ = f.Close() }
	tb.Cleanup(leave)
	return leave
}

// Another user, or a run that reads the repository, locks a git directory: runs start all
// the same, are protected all the same, and what they need stays as long as they need it.
func TestLocksOfStrangers(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	gitDir := filepath.Join(w.tree, ".git")
	redirect := filepath.Join(gitDir, "commondir")
	const try = "echo /evil > .git/commondir; cat .git/commondir"
	leave := stranger(t, gitDir)
	if out := script(t, w.unguarded(), try); out.stdout != ".\n" {
		t.Errorf("got %q, %s", out.stdout, out.stderr)
	}

	first, err := Start(t.Context(), gather(t, w.unguarded()), Options{Stdin: devNull(t), Stdout: capture(t), Stderr: capture(t), Timeout: 30 * time.Second})
	must(t, err)
	defer first.Close()
	leave()
	// A run that has the lock begins and ends meanwhile.
	if out := script(t, w.unguarded(), try); out.stdout != ".\n" {
		t.Errorf("got %q, %s", out.stdout, out.stderr)
	}
	if !exists(redirect) {
		t.Error("what the first run needs was cleared away")
	}
	first.Close()
	if exists(redirect) {
		t.Error("the last one has not cleared up")
	}
}

// However many git directories a stranger locks, he costs a start one wait.
func TestLocksOfStrangersCostOneWait(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		repository(t, filepath.Join(w.tree, name))
		stranger(t, filepath.Join(w.tree, name, ".git"))
	}
	began := time.Now()
	p, err := gather(t, w.unguarded()).place()
	must(t, err)
	defer p.remove()
	if took := time.Since(began); took > 5*lockWait {
		t.Errorf("it took %s", took)
	}
}
