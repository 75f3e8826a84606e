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

// found is one name on the disk that matters.
type found struct {
	path string
	mode fs.FileMode // type bits, of the entry itself and not of what it links to
	git  string      // the git directory whose name it is, if any

	pattern string // what of the run's patterns it matches, if any
}

// findings is what one root holds.
type findings struct {
	names      []found // protected names, and sockets
	globbed    []found // what the patterns of the run match
	gits       []gitDir
	referenced map[string]bool // git directories that a .git file leads to
	closed     []string        // folders of one's own that cannot be read
	deep       []string        // folders that lie too deep to be searched
	notes      []string        // for the user: what could not be protected
}

// maxDepth bounds the search, so that a folder made to be endless does not keep every
// later run from starting; maxPath does it for names that are long. What lies deeper is
// hidden as a whole.
const (
	maxDepth = 128
	maxPath  = 3500
)

// scanner is what one worker of a walk has found.
type scanner struct {
	findings
	walk       *walk
	root, home string
	globs      *globSet

	tops  []string // folders that have a .git: what relative paths of its configuration start from
	errs  []error
	buf   []byte
	dirs  []place // still to be searched
	subs  []string
	count int

	missed  int          // directories that were not as noted
	taken   int          // directories that were noted
	listed  []*cacheNode // what stands for notes that were not right
	devices map[uint64]bool
}

// place is a folder to be searched.
type place struct {
	path   string
	depth  int
	names  bool // protected names are looked for
	inGit  bool // below a .git
	claude bool // it is a .claude whose names are looked for
	state  bool // it is a runner's state directory

	rec  int32      // its note of an earlier walk, or noRec
	node *cacheNode // where its note is taken, or nil
}

func (s *scanner) add(path string, mode fs.FileMode, git string) {
	s.names = append(s.names, found{path: path, mode: mode.Type(), git: git})
}

func (s *scanner) fail(err error) {
	s.errs = append(s.errs, fmt.Errorf("search for protected names: %w", err))
}

// failed sorts out why a folder could not be listed.
func (s *scanner) failed(dir string, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		// It went away while we looked: then it holds nothing.
	case errors.Is(err, syscall.ENAMETOOLONG):
		s.tooDeep(dir)
	case errors.Is(err, fs.ErrPermission):
		if !foreign(dir) {
			s.closed = append(s.closed, dir)
		}
	default:
		s.fail(err)
	}
}

// tooDeep hides a folder instead of searching it.
func (s *scanner) tooDeep(dir string) { s.deep = append(s.deep, dir) }

// foreign reports whether a folder belongs to another user.
func foreign(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}

// The entries that tell a git directory.
const (
	markHead = 1 << iota
	markObjects
	markRefs
	markCommon
)

// dir searches one folder, and notes those in it for later.
func (s *scanner) dir(at place) {
	if at.depth > maxDepth || len(at.path) > maxPath {
		s.tooDeep(at.path)
		return
	}
	if s.known(&at) {
		return
	}
	var (
		marks int
		st    folderStat
		begin = s.weight()
	)
	s.subs = s.subs[:0]
	err := list(at.path, s.buf, &st, func(name []byte, mode fs.FileMode, _ uint64) {
		s.count++
		switch string(name) {
		case "HEAD":
			marks |= markHead
		case "objects":
			marks |= markObjects
		case "refs":
			marks |= markRefs
		case "commondir":
			marks |= markCommon
		}
		if !s.entry(at, name, mode) && mode.IsDir() {
			s.subs = append(s.subs, string(name))
		}
	})
	if err != nil {
		s.failed(at.path, err)
	}
	named := strings.EqualFold(filepath.Base(at.path), ".git")
	isGit := named || marks&markHead != 0 && (marks&markCommon != 0 || marks&(markObjects|markRefs) == markObjects|markRefs)
	if isGit {
		s.gitDir(gitDir{path: at.path, linked: isLinked(at.path), plain: !named && !at.inGit})
	}
	for _, name := range s.subs {
		// Packages are searched for patterns: those are asked for by name.
		if skippedDirs[name] && s.globs == nil || isGit && (at.inGit || named) && gitSkipped[name] {
			continue
		}
		next := s.below(&at, name, named)
		next.path = at.path + "/" + name
		next.rec, next.node = s.noted(&at, name)
		s.dirs = append(s.dirs, next)
	}
	if err == nil && !isGit && s.weight() == begin {
		s.take(&at, &st)
	}
}

// weight grows with everything that is found.
func (s *scanner) weight() int {
	return len(s.names) + len(s.globbed) + len(s.tops) + len(s.gits) + len(s.closed) + len(s.deep) + len(s.errs) + len(s.notes)
}

// below is a folder of at, which is a .git if named, but for its path.
func (s *scanner) below(at *place, name string, named bool) place {
	next := place{
		depth: at.depth + 1, inGit: at.inGit || named, rec: noRec,
		names: at.names && at.depth < scanDepth && !named,
	}
	if at.names {
		// Inside what is protected as a whole, or by names of its own, there may still
		// be sockets.
		lower := strings.ToLower(name)
		next.claude = lower == ".claude"
		next.names = next.names && !protectedDirs[lower] && !next.claude && !skippedDirs[name]
	}
	return next
}

// entry looks at one name. It reports whether that is all about it.
func (s *scanner) entry(at place, name []byte, mode fs.FileMode) (done bool) {
	if mode&fs.ModeSocket != 0 {
		// Whatever listens there listens outside the sandbox.
		s.add(at.path+"/"+string(name), mode, "")
		return true
	}
	if pattern := s.globs.match(s.root, at.path, name); pattern != "" {
		s.globbed = append(s.globbed, found{path: at.path + "/" + string(name), mode: mode.Type(), pattern: pattern})
	}
	if len(name) == 4 && name[0] == '.' && strings.EqualFold(string(name), ".git") {
		path := at.path + "/" + string(name)
		s.tops = append(s.tops, at.path)
		if mode.IsDir() {
			return false
		}
		// A file or a link of that name says where the git directory is.
		s.add(path, mode, "")
		if to, ok := gitFileTarget(path); ok {
			s.referenced[to] = true
		}
		return true
	}
	if !at.names && !at.claude && !at.state {
		return false
	}
	text := string(name)
	lower := strings.ToLower(text)
	switch {
	case at.names && (isProtectedName(text, mode.IsDir()) || lower == ".claude" && !mode.IsDir()),
		at.claude && protectedClaude[lower], at.state && settingsInside(text):
		s.add(at.path+"/"+text, mode, "")
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
