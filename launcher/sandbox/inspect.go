package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
		info, err := os.Lstat(d.Path)
		// A placeholder is gone by now, and what took its place is new: see below.
		if d.Kind == Protect && (err != nil || idOf(info) != d.ID) && (d.Git == "" || f.seen[d.Path]) && !f.cleared(d) {
			changes = append(changes, Change{d.Path, "was replaced from outside while the run was on, which lifts its protection", "look at it before any tool of yours does"})
		}
	}
	again := map[string]findings{}
	var gits []gitDir
	judged := map[string]bool{} // git directories whose names are looked at
	for i := range f.Roots {
		root := &f.Roots[i]
		if !root.Writable {
			continue
		}
		found, err := root.names(f, f.globs)
		again[root.Path] = found
		for _, g := range found.gits {
			judged[g.path] = true
		}
		gits = append(gits, found.gits...)
		if err != nil {
			changes = append(changes, Change{root.Path, fmt.Sprintf("could not be searched again: %v", err), "look for new files such as .git/hooks"})
		}
	}
	for i := range f.Roots {
		found := again[f.Roots[i].Path]
		for _, n := range found.names {
			if f.seen[n.path] {
				continue
			}
			// A .git file that leads to where nobody looks is not judged by that.
			to, ok := gitFileTarget(n.path)
			if why := alarming(n, ok && (judged[to] || !f.writable(to))); why != "" {
				changes = append(changes, Change{n.path, "is new, and " + why, "read or remove it before you work in this folder"})
			}
		}
		for _, path := range found.closed {
			if !slices.ContainsFunc(f.Denials, func(d Denial) bool { return d.Path == path }) {
				changes = append(changes, Change{path, "is new, and cannot be searched", "look for new files such as .git/hooks"})
			}
		}
		changes = append(changes, pending(found.gits)...)
	}
	return append(changes, f.newLinks(gits)...)
}

// cleared reports whether a name that was there was a placeholder of another run, or of
// one that was killed.
func (f *Facts) cleared(d Denial) bool {
	_, err := os.Lstat(d.Path)
	return d.Git != "" && d.made && err != nil
}

// alarming says what is wrong with a new name, and nothing about what comes with every
// git init, clone and worktree: it judges by content. known says of a .git file that
// the directory it leads to is judged for itself, or was out of the run's reach.
func alarming(n found, known bool) string {
	const acted = "tools outside the sandbox act on files of that name"
	base := filepath.Base(n.path)
	switch {
	case n.mode&fs.ModeSocket != 0:
		return ""
	case n.mode&fs.ModeSymlink != 0:
		return acted
	case n.git == "" && base == ".git":
		if known {
			return ""
		}
		return acted
	case n.git == "":
		return acted
	}
	info, err := os.Lstat(n.path)
	if err != nil {
		return ""
	}
	switch base {
	case "config", "config.worktree":
		if what := unordinary(n.path); what != "" {
			return "it says more than git itself would write there: " + strconv.Quote(what)
		}
	case "hooks":
		entries, err := os.ReadDir(n.path)
		if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !strings.HasSuffix(e.Name(), ".sample") }) {
			return "git runs what is in it"
		}
	case "commondir":
		// A linked worktree's leads to the git directory that it lies in.
		text, err := readSmall(n.path)
		lies := filepath.Base(filepath.Dir(n.git)) == "worktrees" && isGitDir(filepath.Dir(filepath.Dir(n.git)))
		if err != nil || !lies || strings.TrimSpace(text) != "../.." {
			return "it makes git take its configuration and hooks from elsewhere"
		}
	case "gitdir":
		if filepath.Base(filepath.Dir(n.git)) != "worktrees" {
			return acted
		}
	default: // attributes, alternates
		if info.Size() > 0 {
			return acted
		}
	}
	return ""
}

// pending finds rebases that stopped before a command: git runs it when the user
// continues.
func pending(gits []gitDir) []Change {
	var changes []Change
	for _, g := range gits {
		path := filepath.Join(g.path, "rebase-merge", "git-rebase-todo")
		text, err := readSmall(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word == "exec" || word == "x" {
				changes = append(changes, Change{path, "makes git run a command when the rebase goes on", "read it, or run git rebase --abort"})
				break
			}
		}
	}
	return changes
}
