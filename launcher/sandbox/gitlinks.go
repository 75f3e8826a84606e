package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// git makes no symbolic link in its own directory, but writes through any that is there:
// a reflog that leads to a start file of the shell gets a line for every commit that the
// user makes or takes over, and the subject of the commit in it. No mount can keep a run
// from making one, for git itself makes and replaces files there all the time. So those
// that are new are told.

// linkSkipped of a git directory are not searched: what git writes there has names and
// contents of its own.
var linkSkipped = set("objects", "refs", "lfs", "annex", "reftable")

// maxLinkNames bounds how many names are looked at in all.
const maxLinkNames = 500_000

// linkSlack is how far the clock of file systems may be behind.
const linkSlack = time.Second

// newLinks finds the links in git directories that were made after the run began: by
// their time of change, which no program can set.
func (f *Facts) newLinks(gits []gitDir) []Change {
	known := map[string]bool{}
	var todo []string
	for _, g := range gits {
		known[g.path] = true
		todo = append(todo, g.path)
	}
	for i := range f.Roots {
		if r := &f.Roots[i]; r.store && r.Writable && !linkSkipped[filepath.Base(r.Path)] {
			todo = append(todo, r.Path)
		}
	}
	var changes []Change
	buf := make([]byte, listBuffer)
	for seen := 0; len(todo) > 0 && seen < maxLinkNames; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		// What cannot be listed git cannot write either.
		_ = list(dir, buf, nil, func(name []byte, mode fs.FileMode, _ uint64) {
			seen++
			path := dir + "/" + string(name)
			skipped := known[path] || known[dir] && linkSkipped[string(name)]
			switch {
			case mode.IsDir() && !skipped && len(path) < maxPath:
				todo = append(todo, path)
			case mode&fs.ModeSymlink != 0 && f.isNew(path):
				to, _ := os.Readlink(path)
				changes = append(changes, Change{path, "is a new symbolic link to " + to + ", and git writes through it", "remove it before git does anything here outside of a run"})
			}
		})
	}
	return changes
}

// isNew reports whether a name was made, or what it names was changed, since the run
// began.
func (f *Facts) isNew(path string) bool {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return false
	}
	return time.Unix(st.Ctim.Unix()).After(f.began.Add(-linkSlack))
}
