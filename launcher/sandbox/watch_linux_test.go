package sandbox

import (
	"os"
	"strings"
	"testing"
	"time"
)

// What lifts a mask from outside is told at once, and nothing that does not.
func TestLiftedMasksAreTold(t *testing.T) {
	needBwrap(t)
	w := newWorld(t)
	repository(t, w.tree)
	write(t, w.tree+"/.env", "A=1\n")
	write(t, w.tree+"/a.pem", "k")
	write(t, w.tree+"/.npmrc", "x")
	p := w.profile()
	p.HiddenGlobs = []string{"*.pem"}
	f := gather(t, p)
	proc, err := Start(t.Context(), f, Options{Stdin: devNull(t), Stdout: capture(t), Stderr: capture(t)})
	must(t, err)
	defer proc.Close()
	told := make(chan Change, 10)
	stop := f.Watch(func(c Change) { told <- c })
	next := func(want string) {
		t.Helper()
		select {
		case c := <-told:
			if got := strings.TrimPrefix(c.Path, w.tree+"/") + " " + c.What; !strings.HasPrefix(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("not told: %s", want)
		}
	}
	write(t, w.tree+"/.env", "A=2\n") // in place: the mask stays
	write(t, w.tree+"/src/new.go", "")
	write(t, w.tree+"/.git/index.lock", "")
	git(t, w.tree, "config", "user.name", "me")
	next(".git/config was replaced from outside: the run may write it")
	write(t, w.tree+"/b", "k2")
	must(t, os.Rename(w.tree+"/b", w.tree+"/a.pem"))
	next("a.pem was replaced from outside: the run can read it")
	must(t, os.Remove(w.tree+"/.npmrc"))
	next(".npmrc was removed from outside")
	git(t, w.tree, "config", "user.name", "again")
	stop()
	select {
	case c := <-told:
		t.Errorf("told as well: %v", c)
	default:
	}
}
