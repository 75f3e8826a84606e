package sandbox

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"postern/launcher/nameguard"
)

// closedGit are the names of a git directory by which it redirects git. Unlike names such
// as .env* this is a closed set: those that are missing get a placeholder, so that they
// cannot be made either.
var closedGit = nameguard.Git()

// gitSkipped are not searched for further git directories inside a .git: they hold
// thousands of entries, and git makes all of them.
var gitSkipped = set("objects", "refs", "logs", "hooks", "lfs", "rr-cache", "info", "branches")

// gitDir is a directory that git takes for a repository, or for a linked worktree's
// part of one.
type gitDir struct {
	path   string
	linked bool // commondir leads elsewhere: hooks and configuration are read there
	plain  bool // a bare layout: neither named .git nor inside one
}

// needed are the names that decide about g.
func (g gitDir) needed() []string {
	if g.linked {
		return []string{"commondir", "gitdir", "config.worktree"}
	}
	return []string{"hooks", "config", "config.worktree", "commondir", "info/attributes", "objects/info/alternates"}
}

// placeholder is the content of a missing name, chosen to change nothing: git reads
// an empty file as no settings, and a common directory "." as the directory itself.
func placeholder(name string) string {
	if filepath.Base(name) == "commondir" {
		return ".\n"
	}
	return ""
}

// maxSmall bounds what is read of a file that a run may have made, in bytes.
const maxSmall = 1 << 20

// readSmall reads a small file that hostile code may have made: what is no file, or a
// pipe that never ends, is an error and not a wait.
func readSmall(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSmall {
		return "", &os.PathError{Op: "read", Path: path, Err: errors.New("no file, or too large")}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSmall))
	return string(text), err
}

// isLinked reads dir/commondir. A placeholder there is none.
func isLinked(dir string) bool {
	text, err := readSmall(filepath.Join(dir, "commondir"))
	if err != nil {
		return false
	}
	to := strings.TrimRight(text, "\r\n")
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}
	return filepath.Clean(to) != dir
}

// isGitDir is git's own test: HEAD, and either objects and refs, or a commondir that says
// where they are. A walk tells the same by the entries it meets.
func isGitDir(dir string) bool {
	has := func(name string) bool { return exists(filepath.Join(dir, name)) }
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// gitFileTarget is the directory that a .git file leads to.
func gitFileTarget(path string) (string, bool) {
	text, err := readSmall(path)
	if err != nil {
		return "", false
	}
	to, ok := strings.CutPrefix(strings.TrimRight(text, "\r\n"), "gitdir: ")
	if !ok {
		return "", false
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	to, err = filepath.EvalSymlinks(to)
	return to, err == nil
}

// inWorktree reports whether a directory above dir has a .git: then what lies in dir
// are files that git tracks, or would add.
func inWorktree(dir string) bool {
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		if exists(filepath.Join(at, ".git")) {
			return true
		}
		if at == "/" {
			return false
		}
	}
}

// addGitDirs protects the git directories that were found, and those that a root lies
// in, name by name.
func (f *Facts) addGitDirs(gits []gitDir, referenced map[string]bool) {
	for i := range f.Roots {
		for dir := f.Roots[i].Path; f.Roots[i].Writable && dir != "/"; dir = filepath.Dir(dir) {
			known := slices.ContainsFunc(gits, func(g gitDir) bool { return g.path == dir })
			if known || filepath.Base(dir) != ".git" && !isGitDir(dir) {
				continue
			}
			gits = append(gits, gitDir{path: dir, linked: isLinked(dir)})
			for _, name := range closedGit {
				path := filepath.Join(dir, name)
				if info, err := os.Lstat(path); err == nil {
					f.denyNamed(found{path: path, mode: info.Mode().Type(), git: dir})
				}
			}
		}
	}
	for _, g := range gits {
		root := slices.ContainsFunc(f.Roots, func(r Root) bool { return r.Path == g.path })
		if g.plain && !root && !referenced[g.path] && inWorktree(g.path) {
			// A placeholder in it would be added to the repository around it.
			f.denyNamed(found{path: g.path})
			f.warnf("%s is a git directory inside a worktree, and read-only; show it with --bind to work in it", g.path)
			continue
		}
		f.gits = append(f.gits, g.path)
		for _, name := range g.needed() {
			f.reserve(g.path, name)
		}
	}
}

// reserve plans a placeholder for a name of a git directory that is not there.
func (f *Facts) reserve(dir, name string) {
	path := filepath.Join(dir, name)
	covered := func(d Denial) bool { return contains(d.Path, path) }
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || !f.writable(path) || slices.ContainsFunc(f.Denials, covered) {
		return
	}
	// On the way, a folder may be missing. What must not be is a link out of the git
	// directory, and nobody looks for alternates of objects that are not there.
	for at := filepath.Dir(path); at != dir; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		switch {
		case err == nil && !info.IsDir():
			f.warnf("%s is not a folder of its own: a file made there later is only watched", at)
			return
		case err != nil && filepath.Base(at) == "objects":
			return
		}
	}
	f.Denials = append(f.Denials, Denial{Path: path, Kind: Protect, Dir: name == "hooks", Git: dir})
}
