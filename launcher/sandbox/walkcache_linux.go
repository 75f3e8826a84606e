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
	"unsafe"

	"golang.org/x/sys/unix"
)

// noRec is the place of a directory without a note.
const noRec = -1

const (
	cachePattern = ".walk-*"

	// cacheFrom is from how many names on notes are taken: smaller folders are listed in
	// no time.
	cacheFrom = 20_000

	// cacheAgain is for how many directories that were other than noted, and could be
	// noted now, it is worth writing the notes again: these, and one of so many.
	cacheAgain, cacheAgainOf = 32, 128

	// cacheFiles is how many folders have notes at a time, and cacheSize bounds each.
	cacheFiles = 8
	cacheSize  = 16 << 20

	// settled is how long a directory must not have changed before its time is believed:
	// the clock of file systems ticks slowly.
	settled = 2 * time.Second
)

// cacheNode is one directory of a walk that takes notes: one that was listed, or one whose
// note of an earlier walk stands for it.
type cacheNode struct {
	cacheRec
	name     string
	children []*cacheNode
	rec      int32 // the earlier note, or noRec
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
	put("postern walk 2")
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

// openCache reads the notes of a walk, unless it was given those of an earlier one.
// Without any it takes some.
func (w *walk) openCache(from *place) {
	from.rec = noRec
	if w.dir == "" {
		return
	}
	w.cacheFile = w.cacheName(*from)
	w.began = time.Now().Add(w.later)
	if w.cache == nil {
		if data, err := os.ReadFile(w.cacheFile); err == nil {
			w.cache = decodeCache(data)
		}
	} else {
		w.given = true
	}
	if w.cache != nil {
		from.rec = 0
		return
	}
	from.node = &cacheNode{rec: noRec}
	w.top = from.node
}

// closeCache writes the notes of a walk that took some. Those of an earlier walk are
// written again where enough of them can be put right.
func (w *walk) closeCache() {
	w.after = w.cache
	switch {
	case w.given:
		return
	case w.cache != nil:
		taken, listed := 0, map[int32]*cacheNode{}
		for _, s := range w.workers {
			taken += s.taken
			for _, n := range s.listed {
				listed[n.rec] = n
			}
		}
		if taken < w.cacheAgain() {
			return
		}
		w.top = w.cache.tree(0, listed)
	case w.top == nil || w.entries.Load() < int64(w.cacheFrom()):
		return
	}
	if data := encodeCache(w.top); len(data) <= cacheSize {
		w.writeCache(data)
		w.after = decodeCache(data)
	}
}

func (w *walk) cacheAgain() int {
	if w.small {
		return 1
	}
	return cacheAgain + int(w.cache.count)/cacheAgainOf
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
	r := c.rec(uint32(at.rec)) //nolint:gosec // positive
	if r.ino == 0 || r.context != at.context() || !s.unchanged(at, &r) {
		s.missed++
		if !s.walk.given {
			at.node = &cacheNode{rec: at.rec}
			s.listed = append(s.listed, at.node)
		}
		return false
	}
	s.count++
	return true
}

// unchanged goes on below a directory if it is the one of a note.
func (s *scanner) unchanged(at *place, r *cacheRec) bool {
	if r.many == 0 {
		path, err := unix.BytePtrFromString(at.path)
		return err == nil && r.is(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW)
	}
	fd, err := unix.Open(at.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var none byte
	if !r.is(fd, &none, unix.AT_EMPTY_PATH) {
		return false
	}
	c := s.walk.cache
	for i := r.first; i < r.first+r.many; i++ {
		child, name := c.rec(i), c.name(i)
		next := s.below(at, name, false)
		if child.many == 0 && child.ino != 0 && child.context == next.context() && next.depth <= maxDepth && len(at.path)+len(name) < maxPath &&
			child.is(fd, unsafe.StringData(name), unix.AT_SYMLINK_NOFOLLOW) { //nolint:gosec // a zero byte follows it
			s.count++
			continue
		}
		next.path = at.path + "/" + name
		next.rec = int32(i) //nolint:gosec // bounded when it is read
		s.dirs = append(s.dirs, next)
	}
	return true
}

// is reports whether a directory is the one that was noted, and unchanged. name ends with
// a zero byte.
//
// Go's scheduler is told of the system call, which makes it a quarter dearer: what is not
// in memory is read from a disk, and where something was mounted since, a server may be
// asked that does not answer. A raw call would keep one of the program's processors for
// that long, and everybody who waits for it.
func (r *cacheRec) is(fd int, name *byte, flags int) bool {
	const mask = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_CTIME
	var st unix.Statx_t
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(name)), uintptr(flags|unix.AT_NO_AUTOMOUNT), mask, uintptr(unsafe.Pointer(&st)), 0) //nolint:gosec // as package unix does it
	return errno == 0 && st.Mask&mask == mask && st.Ino == r.ino && unix.Mkdev(st.Dev_major, st.Dev_minor) == r.dev &&
		st.Ctime.Sec == r.sec && st.Ctime.Nsec == r.nsec && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// noted is the note of a folder of at, or where one is to be taken.
func (s *scanner) noted(at *place, name string) (rec int32, node *cacheNode) {
	rec = noRec
	if c := s.walk.cache; c != nil && at.rec != noRec {
		if i, ok := c.find(c.rec(uint32(at.rec)), name); ok { //nolint:gosec // positive
			rec = int32(i) //nolint:gosec // bounded when it is read
		}
	}
	if at.node == nil {
		return rec, nil
	}
	node = &cacheNode{name: name, rec: rec}
	at.node.children = append(at.node.children, node)
	if rec != noRec {
		return rec, nil
	}
	return noRec, node
}

// take notes a directory in which nothing was found, if its time can be believed.
func (s *scanner) take(at *place, st *folderStat) {
	if at.node == nil || st.ino == 0 || !s.believed(at.path, st.dev) || s.walk.began.Sub(time.Unix(st.sec, st.nsec)) < settled {
		return
	}
	r := &at.node.cacheRec
	r.dev, r.ino, r.sec, r.nsec, r.context = st.dev, st.ino, st.sec, uint32(st.nsec), at.context() //nolint:gosec // below a thousand million
	s.taken++
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
