package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// found is one protected name on the disk.
type found struct {
	path string
	mode fs.FileMode // type bits, of the entry itself and not of what it links to
}

// scan finds the protected names in a folder the run may write, down to scanDepth.
// What it cannot read it reports as an error: a name that may be there and is not
// protected would be a quietly weaker run. Folders of other users are left out: the
// run cannot read them either, and cannot change that.
func scan(root string) ([]found, error) {
	s := scanner{}
	if isGitDir(root) {
		s.gitDir(root)
	}
	s.dir(root, 1)
	return s.names, errors.Join(s.errs...)
}

// scanState finds what stays protected inside a runner's state directory.
func scanState(root string) ([]found, error) {
	s := scanner{}
	for _, e := range s.read(root) {
		if settingsInside(e.Name()) {
			s.add(filepath.Join(root, e.Name()), e.Type())
		}
	}
	return s.names, errors.Join(s.errs...)
}

type scanner struct {
	names []found
	errs  []error
}

func (s *scanner) add(path string, mode fs.FileMode) {
	s.names = append(s.names, found{path, mode.Type()})
}

// read lists dir in directory order; sorting 300,000 names would cost more than
// everything else here.
func (s *scanner) read(dir string) []fs.DirEntry {
	f, err := os.Open(dir)
	if err != nil {
		// It went away while we looked: then it holds nothing.
		if !errors.Is(err, fs.ErrNotExist) && !foreign(dir, err) {
			s.errs = append(s.errs, fmt.Errorf("search for protected names: %w", err))
		}
		return nil
	}
	defer f.Close() //nolint:errcheck // only read
	entries, err := f.ReadDir(-1)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("search for protected names: %w", err))
	}
	return entries
}

// foreign reports whether err is that a folder of another user is closed to us.
func foreign(dir string, err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}

func (s *scanner) dir(dir string, depth int) {
	for _, e := range s.read(dir) {
		name := e.Name()
		path := filepath.Join(dir, name)
		lower := strings.ToLower(name)
		switch {
		case isProtectedName(name, e.IsDir()):
			s.add(path, e.Type())
		case lower == ".git":
			s.git(path, e)
		case lower == ".claude" && e.IsDir():
			s.claude(path)
		case lower == ".claude":
			s.add(path, e.Type())
		case e.Type()&fs.ModeSocket != 0:
			// Whatever listens there listens outside the sandbox.
			s.add(path, e.Type())
		case e.IsDir() && depth < scanDepth && !skippedDirs[name]:
			s.dir(path, depth+1)
		}
	}
}

func (s *scanner) claude(dir string) {
	for _, e := range s.read(dir) {
		if protectedClaude[strings.ToLower(e.Name())] {
			s.add(filepath.Join(dir, e.Name()), e.Type())
		}
	}
}

// git peeks into a .git entry. A file or a link of that name says where the git
// directory is, so it must not change either.
func (s *scanner) git(path string, e fs.DirEntry) {
	if !e.IsDir() {
		s.add(path, e.Type())
		return
	}
	s.gitDir(path)
}

// gitDir lists what is protected in one git directory, and in those of its
// submodules and linked worktrees.
func (s *scanner) gitDir(dir string) {
	for _, name := range protectedGit {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil {
			s.add(path, info.Mode())
		} else if !errors.Is(err, fs.ErrNotExist) {
			s.errs = append(s.errs, fmt.Errorf("search for protected names: %w", err))
		}
	}
	for _, e := range s.optional(filepath.Join(dir, "worktrees")) {
		path := filepath.Join(dir, "worktrees", e.Name(), "config.worktree")
		if info, err := os.Lstat(path); err == nil {
			s.add(path, info.Mode())
		}
	}
	s.modules(filepath.Join(dir, "modules"), 1)
	// The file system monitor of the user's own git listens here.
	for _, e := range s.read(dir) {
		if e.Type()&fs.ModeSocket != 0 {
			s.add(filepath.Join(dir, e.Name()), e.Type())
		}
	}
}

// modules searches .git/modules, where submodules with slashes in their names make
// further levels.
func (s *scanner) modules(dir string, depth int) {
	for _, e := range s.optional(dir) {
		path := filepath.Join(dir, e.Name())
		switch {
		case !e.IsDir():
		case isGitDir(path):
			s.gitDir(path)
		case depth < scanDepth:
			s.modules(path, depth+1)
		}
	}
}

// optional is read for a directory that need not be there.
func (s *scanner) optional(dir string) []fs.DirEntry {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil
	}
	return s.read(dir)
}

// isGitDir reports whether dir looks like a git directory to git: HEAD, objects
// and refs.
func isGitDir(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil {
		return false
	}
	for _, name := range []string{"objects", "refs"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}
