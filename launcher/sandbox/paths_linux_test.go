package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// Thousands of protected files, which would not fit an argument list.
func TestManyDenials(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	w := newWorld(t)
	for i := range 400 {
		write(t, fmt.Sprintf("%s/d%03d/.env", w.tree, i), "x")
	}
	out := script(t, w.profile(), "for d in d*; do echo y 2>/dev/null > $d/.env; done; cat d*/.env | sort -u")
	if out.stdout == "" || strings.Trim(out.stdout, "x\n") != "" {
		t.Errorf("got %.200q; stderr %.200s", out.stdout, out.stderr)
	}
}
