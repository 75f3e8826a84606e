package sandbox

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// In a large folder nearly every directory holds nothing of interest and is as it was at
// the last start. A walk that met many notes those in the run directory, with what tells
// that a directory has not changed: its inode and its time of change, which no program
// can set. The next walk asks for that, instead of for the names, and goes on to the
// folders below. One where something was found is always listed, and so is one that is
// other than noted in any way.
//
// The notes are believed for the same reason as the sockets beside them: the run directory
// is the user's alone, and no run is shown it.
type walkCache struct{ recs []cacheRec }

// noRec is the place of a directory without a note.
const noRec = -1

// cacheRec is one directory in which nothing was found, or (without inode) one that is
// only the way to others.
type cacheRec struct {
	dev, ino    uint64
	sec, nsec   int64
	context     uint32
	name        string
	first, many uint32 // the folders below, by name
}

const (
	cachePattern = ".walk-*"

	// cacheFrom is from how many names on notes are taken: smaller folders are listed in
	// no time.
	cacheFrom = 20_000

	// cacheFiles is how many folders have notes at a time, and cacheSize bounds each.
	cacheFiles = 8
	cacheSize  = 16 << 20

	// settled is how long a directory must not have changed before its time is believed:
	// the clock of file systems ticks slowly.
	settled = 2 * time.Second
)

// cacheNode is one directory of a walk that takes notes.
type cacheNode struct {
	cacheRec
	children []*cacheNode
}

// context packs what, beside its names, a directory is judged by.
func (at *place) context() uint32 {
	c := uint32(at.depth) << 4 //nolint:gosec // at most maxDepth
	for i, set := range []bool{at.names, at.inGit, at.claude, at.state} {
		if set {
			c |= 1 << i
		}
	}
	return c
}

// cacheName is where the notes of a walk are: other patterns, other notes. So it is with
// the names that are looked for: those of a release are not those of the next.
func (w *walk) cacheName(from place) string {
	h := fnv.New128a()
	put := func(text string) { _, _ = h.Write(append([]byte(text), 0)) }
	put("postern walk 1")
	put(w.root)
	put(strconv.Itoa(int(from.context())))
	put(strconv.Itoa(scanDepth))
	for _, names := range []map[string]bool{protectedFiles, protectedDirs, protectedClaude, skippedDirs, gitSkipped} {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			put(name)
		}
		put("")
	}
	if w.globs != nil {
		for _, g := range w.globs.globs {
			put(strings.Join(g.parts, "/"))
			put(strconv.FormatBool(g.abs))
		}
	}
	return filepath.Join(w.dir, strings.TrimSuffix(cachePattern, "*")+strconv.FormatUint(binary.BigEndian.Uint64(h.Sum(nil)), 36)+strconv.FormatUint(binary.BigEndian.Uint64(h.Sum(nil)[8:]), 36))
}

// openCache reads the notes of a walk. Without any it takes some.
func (w *walk) openCache(from *place) {
	from.rec = noRec
	if w.dir == "" {
		return
	}
	w.cacheFile = w.cacheName(*from)
	w.began = time.Now().Add(w.later)
	if data, err := os.ReadFile(w.cacheFile); err == nil {
		if w.cache = decodeCache(data); w.cache != nil {
			from.rec = 0
			return
		}
	}
	from.node = &cacheNode{}
	w.top = from.node
}

// closeCache writes the notes of a walk that took some, and removes those that too much
// has changed for: the next walk takes new ones.
func (w *walk) closeCache() {
	switch {
	case w.cache != nil:
		missed := 0
		for _, s := range w.workers {
			missed += s.missed
		}
		if missed > 500+len(w.cache.recs)/10 {
			_ = os.Remove(w.cacheFile)
		}
	case w.top != nil && w.entries.Load() >= int64(w.cacheFrom()):
		if data := encodeCache(w.top); len(data) <= cacheSize {
			w.writeCache(data)
		}
	}
}

func (w *walk) cacheFrom() int {
	if w.small {
		return 0
	}
	return cacheFrom
}

// writeCache replaces the notes, and removes the oldest where there are many.
func (w *walk) writeCache(data []byte) {
	f, err := os.CreateTemp(w.dir, ".tmp"+cachePattern)
	if err != nil {
		return // a walk without notes is only slower
	}
	_, err = f.Write(data)
	if f.Close() != nil || err != nil || os.Rename(f.Name(), w.cacheFile) != nil {
		_ = os.Remove(f.Name())
		return
	}
	for _, pattern := range []string{cachePattern, ".tmp" + cachePattern} {
		names, _ := filepath.Glob(escapeGlob(w.dir) + "/" + pattern)
		age := func(name string) int64 {
			info, err := os.Lstat(name)
			if err != nil {
				return 0
			}
			return info.ModTime().UnixNano()
		}
		slices.SortFunc(names, func(a, b string) int { return int(min(max(age(b)-age(a), -1), 1)) })
		for _, name := range names[min(len(names), cacheFiles):] {
			_ = os.Remove(name)
		}
	}
}

// known goes on below a directory that is as it was noted, and reports whether it is.
// Folders with none below them, which most are, are asked for from here: by one name
// instead of a whole path.
func (s *scanner) known(at *place) bool {
	c := s.walk.cache
	if c == nil || at.rec == noRec {
		return false
	}
	r := &c.recs[at.rec]
	if r.ino == 0 || r.context != at.context() {
		s.missed++
		return false
	}
	if r.many == 0 {
		if !r.is(unix.AT_FDCWD, at.path, unix.AT_SYMLINK_NOFOLLOW) {
			s.missed++
			return false
		}
		s.count++
		return true
	}
	fd, err := unix.Open(at.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		s.missed++
		return false
	}
	defer unix.Close(fd)
	if !r.is(fd, "", unix.AT_EMPTY_PATH) {
		s.missed++
		return false
	}
	s.count++
	for i := r.first; i < r.first+r.many; i++ {
		child := &c.recs[i]
		next := s.below(at, child.name, false)
		if child.many == 0 && child.ino != 0 && child.context == next.context() && next.depth <= maxDepth && len(at.path)+len(child.name) < maxPath &&
			child.is(fd, child.name, unix.AT_SYMLINK_NOFOLLOW) {
			s.count++
			continue
		}
		next.path = at.path + "/" + child.name
		next.rec = int32(i) //nolint:gosec // bounded when it is read
		s.dirs = append(s.dirs, next)
	}
	return true
}

// is reports whether a directory is the one that was noted, and unchanged.
func (r *cacheRec) is(fd int, name string, flags int) bool {
	var st unix.Stat_t
	return unix.Fstatat(fd, name, &st, flags) == nil && st.Ino == r.ino && st.Dev == r.dev &&
		st.Ctim.Sec == r.sec && st.Ctim.Nsec == r.nsec && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// noted is the note of a folder of at, or where one is to be taken.
func (s *scanner) noted(at *place, name string) (rec int32, node *cacheNode) {
	if c := s.walk.cache; c != nil && at.rec != noRec {
		r := &c.recs[at.rec]
		children := c.recs[r.first : r.first+r.many]
		if i, ok := slices.BinarySearchFunc(children, name, func(r cacheRec, name string) int { return strings.Compare(r.name, name) }); ok {
			return int32(r.first) + int32(i), nil //nolint:gosec // as above
		}
	}
	if at.node != nil {
		node = &cacheNode{cacheRec: cacheRec{name: name}}
		at.node.children = append(at.node.children, node)
	}
	return noRec, node
}

// take notes a directory in which nothing was found, if its time can be believed.
func (s *scanner) take(at *place, st *folderStat) {
	if at.node == nil || st.ino == 0 || !s.believed(at.path, st.dev) || s.walk.began.Sub(time.Unix(st.sec, st.nsec)) < settled {
		return
	}
	r := &at.node.cacheRec
	r.dev, r.ino, r.sec, r.nsec, r.context = st.dev, st.ino, st.sec, st.nsec, at.context()
}

// believed reports whether directories of a file system change their time whenever a
// name in them does, for everybody at once. Those of a network may not.
func (s *scanner) believed(path string, dev uint64) bool {
	ok, known := s.devices[dev]
	if !known {
		var fs unix.Statfs_t
		ok = unix.Statfs(path, &fs) == nil && slices.Contains(localFS, int64(fs.Type)) //nolint:unconvert // its width differs by platform
		if s.devices == nil {
			s.devices = map[uint64]bool{}
		}
		s.devices[dev] = ok
	}
	return ok
}

var localFS = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC}
