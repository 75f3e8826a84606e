package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Change is something about protected names that is other than it was when the run
// started: what mounts cannot prevent is at least not silent.
type Change struct {
	Path string
	What string // one phrase for a person
	Cure string
}

// Inspect looks at the roots again when the run has ended. Mounts hold what existed;
// a name that did not exist may have been made (SPEC 49), a symlink replaced, and a
// mask lifted by somebody outside who replaced the file under it.
func (f *Facts) Inspect() []Change {
	var changes []Change
	for _, w := range f.Watches {
		if text, err := os.Readlink(w.Path); err != nil || text != w.Link {
			changes = append(changes, Change{w.Path, "was a symbolic link to " + w.Link + " and was replaced", "look at it before any tool of yours does"})
		}
	}
	for _, d := range f.Denials {
		if info, err := os.Lstat(d.Path); d.Kind == Protect && (err != nil || idOf(info) != d.ID) {
			changes = append(changes, Change{d.Path, "was replaced from outside while the run was on, which lifts its protection", "look at it before any tool of yours does"})
		}
	}
	for i := range f.Roots {
		root := &f.Roots[i]
		if !root.Writable {
			continue
		}
		names, err := root.names()
		if err != nil {
			changes = append(changes, Change{root.Path, fmt.Sprintf("could not be searched again: %v", err), "look for new files such as .git/hooks"})
		}
		for _, n := range names {
			if !slices.Contains(f.seen, n.path) && alarming(n) {
				changes = append(changes, Change{n.path, "is new, and tools outside the sandbox act on files of that name", "read or remove it before you work in this folder"})
			}
		}
	}
	return changes
}

// alarming leaves out what comes with every git init: a configuration, and hooks
// that are samples.
func alarming(n found) bool {
	git := filepath.Base(filepath.Dir(n.path)) == ".git"
	switch {
	case n.mode&os.ModeSocket != 0:
		return false
	case git && filepath.Base(n.path) == "config":
		return false
	case git && filepath.Base(n.path) == "hooks":
		entries, err := os.ReadDir(n.path)
		return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), ".sample") })
	}
	return true
}
