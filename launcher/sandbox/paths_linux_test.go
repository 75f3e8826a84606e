package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestFoldersByTheirSymlinks(t *testing.T) {
	w := newWorld(t)
	must(t, os.Symlink("tree", w.home+"/short"))
	write(t, w.tree+"/f", "x\n")
	p := w.profile()
	p.Binds = []Bind{{Path: w.home + "/short"}}
	out := script(t, p, "pwd -P; cat "+w.home+"/short/f")
	if out.stdout != w.tree+"\nx\n" {
		t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
	}
}

func TestStrangeNames(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"with space", "with\nnewline", "-dash", "--bind", "q'\"$(touch x)", "\xff\xfe", "[a-z]*?", "umläut"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			dir := filepath.Join(w.home, name)
			write(t, dir+"/.npmrc", "x")
			write(t, dir+"/f", "content\n")
			p := w.profile()
			p.Binds = []Bind{{Path: dir}}
			out := script(t, p, "cat f; echo evil > .npmrc; true")
			if out.stdout != "content\n" || read(t, dir+"/.npmrc") != "x" {
				t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
			}
		})
	}
}
