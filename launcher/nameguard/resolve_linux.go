package nameguard

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Bounds of Linux for paths, in bytes.
const (
	maxPath  = 4096 // with the zero byte that ends it
	maxLinks = 40
)

// slot is one path of a call on its way to a place: a directory that is held open, and one
// name in it. All of it is one worker's.
type slot struct {
	text [4 * maxPath]byte // what is still to be gone, and a zero byte
	size int

	name  [maxName + 2]byte // the last name, and room for a slash and a zero byte
	named int               // length of the name
	slash bool              // one ended the path

	dir  int // O_PATH; the name is in it
	keep bool
	zone zone

	mount uint64 // the id of the one that dir is in

	real  [maxPath + 1]byte // the path of dir in the sandbox
	reach int               // its length

	lost bool // the way broke off: name is what dir has not

	from     int    // the directory that a way without links started at, if it went on; -1: it is not needed
	start    int32  // what the text is relative to, as known places are
	recalled int    // length of the way that led to dir before, and does now; -1: none did
	version  uint64 // of Broker.moved when it was looked at

	own   int // the place is the caller's own descriptor of that number; -1: it is not
	whose int // the thread of the caller's process that it is of
	links int // symlinks that were followed
}

// last is the last name, without a slash or a zero byte.
func (s *slot) last() []byte { return s.name[:s.named] }

// at is the last name as system calls take it that look.
func (s *slot) at() *byte {
	s.name[s.named] = 0
	return &s.name[0]
}

// full is the last name as system calls take it that act on the entry itself, with the slash
// that ended the path. Those that look would follow a link for it, from our own root.
func (s *slot) full() *byte {
	if s.slash {
		s.name[s.named] = '/'
		s.name[s.named+1] = 0
		return &s.name[0]
	}
	return s.at()
}

// trailing reports whether the text ends with a slash.
func (s *slot) trailing() bool { return s.size > 0 && s.text[s.size-1] == '/' }

// place is the path of dir.
func (s *slot) place() []byte { return s.real[:s.reach] }

// reset forgets what the slot was about, and closes its directory.
func (s *slot) reset() {
	if s.dir >= 0 && !s.keep {
		closeFD(s.dir)
	}
	s.dir, s.keep, s.own, s.links, s.zone, s.size = -1, false, -1, 0, stranger, 0
	s.recalled = -1
	s.gone()
}

// gone forgets where the text started: what comes now starts elsewhere.
func (s *slot) gone() {
	if s.from >= 0 {
		closeFD(s.from)
	}
	s.from, s.start = -1, nowhere
}

// enter makes another directory the one that the rest of the path starts at.
func (s *slot) enter(fd int, keep bool) {
	if s.dir >= 0 && !s.keep {
		closeFD(s.dir)
	}
	s.dir, s.keep = fd, keep
}

// dots reports whether the last name is "." or "..": every call that would make, move or
// remove such an entry fails in the kernel.
func (s *slot) dots() bool {
	return s.named == 1 && s.name[0] == '.' || s.named == 2 && s.name[0] == '.' && s.name[1] == '.'
}

// split takes the last name off the text and leaves the way to its directory. With whole
// the text is the directory, and the name a dot.
func (s *slot) split(whole bool) unix.Errno {
	text := s.text[:s.size]
	if len(text) == 0 {
		return unix.ENOENT
	}
	end := len(text)
	for end > 0 && text[end-1] == '/' {
		end--
	}
	if end == 0 || whole {
		// The root, or the directory itself.
		s.setName(dot, false)
		return 0
	}
	from := bytes.LastIndexByte(text[:end], '/') + 1
	if end-from > maxName {
		return unix.ENAMETOOLONG
	}
	s.setName(text[from:end], end < len(text))
	s.size = from
	return 0
}

var dot = []byte{'.'}

func (s *slot) setName(name []byte, slash bool) {
	s.named, s.slash = copy(s.name[:maxName], name), slash
}

// resolve finds the place that the text of the slot leads to. The text is relative to the
// slot's directory, if it does not begin with a slash. Symlinks on the way are followed,
// the last name is left alone.
func (w *worker) resolve(s *slot, whole bool) verdict {
	s.lost = false
	if s.recalled >= 0 {
		s.size, s.recalled = s.recalled, -1
		return verdict{}
	}
	s.zone = stranger
	if e := s.split(whole); e != 0 {
		return fail(e)
	}
	straight, v := w.way(s)
	if v.kind == going && s.own < 0 {
		if v = w.judge(s); v.kind == going && straight {
			w.remember(s)
		}
	}
	s.gone()
	return v
}

// way goes to the directory, and reports whether no symlink was on the way.
func (w *worker) way(s *slot) (straight bool, v verdict) {
	from := 0
	if s.size > 0 && s.text[0] == '/' {
		s.enter(w.b.root, true)
		for from < s.size && s.text[from] == '/' {
			from++
		}
	}
	if from >= s.size {
		return true, verdict{}
	}
	if s.size >= maxPath {
		return false, w.walk(s, from) // after symlinks; the kernel has no limit there
	}
	s.text[s.size] = 0
	w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, e := openat2(s.dir, &s.text[from], &w.how)
	switch e {
	case 0:
		if s.start != nowhere && s.start != fromRoot && !s.keep {
			s.from, s.keep = s.dir, true // see remember
		}
		s.enter(fd, false)
		return true, verdict{}
	case unix.ELOOP, unix.ENOENT: // which name is missing the walk finds out
		return false, w.walk(s, from)
	default:
		return false, fail(e)
	}
}

// judge finds out whose the directory of a slot is and, where the rules hold, its path.
func (w *worker) judge(s *slot) verdict {
	if e := statx(s.dir, &nothing[0], unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_INO, &w.stat); e != 0 {
		return fail(e)
	}
	s.mount = w.stat.Mnt_id
	s.zone = w.b.mounts.zones[s.mount]
	switch s.zone {
	case free, process:
		return verdict{kind: passing}
	case stranger:
		return fail(unix.EACCES)
	case guarded, private:
	}
	w.proc = append(decimal(w.proc[:0], s.dir), 0)
	n, e := readlinkat(w.b.self, &w.proc[0], s.real[:])
	switch {
	case e != 0:
		return fail(e)
	case n >= maxPath || n == 0 || s.real[0] != '/':
		return fail(unix.ENAMETOOLONG)
	}
	s.reach = n
	return verdict{}
}

// follow makes the target of the symlink that a slot leads to its text, and its directory
// where the target starts.
func (w *worker) follow(s *slot) verdict {
	if s.links++; s.links > maxLinks {
		return fail(unix.ELOOP)
	}
	n, e := readlinkat(s.dir, s.at(), s.text[:maxPath])
	if e != 0 {
		return fail(e)
	}
	if n == 0 {
		return fail(unix.ENOENT)
	}
	s.size = n
	return verdict{}
}

// mustFollow follows what was a symlink a moment ago.
func (w *worker) mustFollow(s *slot) verdict {
	v := w.follow(s)
	if v.kind == failing && v.err == unix.EINVAL {
		v.err = unix.ELOOP // it was replaced
	}
	return v
}
