package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// found is one protected name on the disk.
type found struct {
	path string
	mode fs.FileMode // type bits, of the entry itself and not of what it links to
	git  string      // the git directory whose name it is, if any
}

// findings is what one root holds.
type findings struct {
	names      []found
	gits       []gitDir
	referenced map[string]bool // git directories that a .git file leads to
	closed     []string        // folders of one's own that cannot be read
	notes      []string        // for the user: what could not be protected
}

// maxDepth bounds the search, so that a folder made to be endless does not keep every
// later run from starting. No path the kernel takes is much deeper.
const maxDepth = 128

// scan finds the protected names in a folder the run may write, down to scanDepth, and
// git directories and sockets at any depth. What it cannot read it reports as an error:
// a name that may be there and is not protected would be a quietly weaker run. Folders
// of other users are left out: the run cannot read them either, and cannot change that.
func scan(root, home string) (findings, error) {
	s := scanner{root: root, home: home}
	s.referenced = map[string]bool{}
	s.dir(root, place{depth: 1, names: true})
	s.configured()
	return s.findings, errors.Join(s.errs...)
}

// scanState finds what stays protected inside a runner's state directory.
func scanState(root, home string) (findings, error) {
	s := scanner{root: root, home: home}
	s.referenced = map[string]bool{}
	for _, e := range s.dir(root, place{depth: 1}) {
		if settingsInside(e.Name()) {
			s.add(filepath.Join(root, e.Name()), e.Type(), "")
		}
	}
	s.configured()
	return s.findings, errors.Join(s.errs...)
}

type scanner struct {
	findings
	root, home string
	tops       []string // folders that have a .git: what relative paths of its configuration start from
	errs       []error
}

// place is where a folder lies.
type place struct {
	depth int
	names bool // protected names are looked for
	inGit bool // below a .git
}

func (s *scanner) add(path string, mode fs.FileMode, git string) {
	s.names = append(s.names, found{path, mode.Type(), git})
}

func (s *scanner) fail(err error) {
	s.errs = append(s.errs, fmt.Errorf("search for protected names: %w", err))
}

// read lists dir in directory order; sorting 300,000 names would cost more than
// everything else here.
func (s *scanner) read(dir string) []fs.DirEntry {
	f, err := os.Open(dir)
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it went away while we looked: then it holds nothing
		case errors.Is(err, syscall.ENAMETOOLONG):
			s.tooDeep(dir)
		case errors.Is(err, fs.ErrPermission):
			if !foreign(dir) {
				s.closed = append(s.closed, dir)
			}
		default:
			s.fail(err)
		}
		return nil
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		s.fail(err)
	}
	return entries
}

func (s *scanner) tooDeep(dir string) {
	s.notes = append(s.notes, "what lies below "+dir[:min(len(dir), 200)]+" is too deep to be searched, and is not protected")
}

// foreign reports whether a folder belongs to another user.
func foreign(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}

// dir searches one folder and those below, and returns its entries.
func (s *scanner) dir(dir string, at place) []fs.DirEntry {
	if at.depth > maxDepth {
		s.tooDeep(dir)
		return nil
	}
	entries := s.read(dir)
	named := strings.EqualFold(filepath.Base(dir), ".git")
	isGit := named || looksLikeGit(hasEntry(entries))
	if isGit {
		s.gitDir(gitDir{path: dir, linked: isLinked(dir), plain: !named && !at.inGit})
	}
	below := place{depth: at.depth + 1, names: at.names && at.depth < scanDepth && !named, inGit: at.inGit || named}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if s.entry(path, e, at) || !e.IsDir() || skippedDirs[e.Name()] || isGit && below.inGit && gitSkipped[e.Name()] {
			continue
		}
		next := below
		// Inside what is protected as a whole, or by names of its own, there may still
		// be sockets.
		lower := strings.ToLower(e.Name())
		next.names = next.names && !protectedDirs[lower] && lower != ".claude"
		s.dir(path, next)
	}
	return entries
}

// entry looks at one name. It reports whether that is all about it.
func (s *scanner) entry(path string, e fs.DirEntry, at place) (done bool) {
	name := e.Name()
	lower := strings.ToLower(name)
	switch {
	case e.Type()&fs.ModeSocket != 0:
		// Whatever listens there listens outside the sandbox.
		s.add(path, e.Type(), "")
		return true
	case lower == ".git":
		s.tops = append(s.tops, filepath.Dir(path))
		if e.IsDir() {
			return false
		}
		// A file or a link of that name says where the git directory is.
		s.add(path, e.Type(), "")
		if to, ok := gitFileTarget(path); ok {
			s.referenced[to] = true
		}
		return true
	case !at.names:
		return false
	case isProtectedName(name, e.IsDir()), lower == ".claude" && !e.IsDir():
		s.add(path, e.Type(), "")
	case lower == ".claude":
		for _, e := range s.read(path) {
			if protectedClaude[strings.ToLower(e.Name())] {
				s.add(filepath.Join(path, e.Name()), e.Type(), "")
			}
		}
	}
	return false
}

// gitDir notes a git directory and the names of the closed set that it has.
func (s *scanner) gitDir(g gitDir) {
	for _, name := range closedGit {
		path := filepath.Join(g.path, name)
		info, err := os.Lstat(path)
		switch {
		case err == nil:
			s.add(path, info.Mode(), g.path)
		case errors.Is(err, fs.ErrPermission) && !foreign(g.path):
			if !slices.Contains(s.closed, g.path) {
				s.closed = append(s.closed, g.path)
			}
			return
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.ENAMETOOLONG):
			s.fail(err)
		}
	}
	s.gits = append(s.gits, g)
}
