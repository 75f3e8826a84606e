package nameguard

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"
)

// known are the directories that a worker has been to of late. Work is done in one directory
// for a while, and most of what it takes to find one is to be told again what was true a
// moment ago: where the caller is, what its path leads to, where that lies.
//
// A call or two look whether the path still leads to the very directory that is held open
// here: the same on the same mount, so nothing was put in its place. Where it lies is what was
// read then. It can have moved since by a call that came to us, which makes all that is
// known worthless (see Broker.moved), or by somebody outside, who is noticed by the time that
// it is believed, and who does not ask the rules anyway.
//
// A path with a symlink in it, or with "..", is gone anew each time: the call that looks would
// follow it, from our own root and through our own descriptors. To make it one the sandbox has
// to ask us, where the path starts in a folder that is not free (none in there leads to one
// that is not); nobody looks meanwhile (see Broker.stir), and all that is known is worthless
// then. So where a path starts is compared first, and held.
type known struct {
	callers [knownCallers]caller
	places  [knownPlaces]knownPlace
	next    int
	path    [len("fd/2147483647/") + knownText + 1]byte
}

const (
	knownCallers = 8
	knownPlaces  = 8
	knownText    = 255

	// believed is how long a place is.
	believed = 10 * time.Millisecond
)

// caller is a thread that has called before. Its directory of the process file system is
// its own for ever: what comes after it under the same number is not found there.
type caller struct {
	pid  uint32
	proc int // O_PATH; -1: not opened
}

// These stand for the descriptor that a path starts at.
const (
	fromRoot = int32(-1) // the path is absolute
	nowhere  = int32(-2) // the place is none to remember
)

// knownPlace is what a path has led to.
type knownPlace struct {
	pid   uint32 // zero for absolute paths
	start int32  // a descriptor of the caller's, atCWD or fromRoot
	text  [knownText]byte
	size  int

	from    int      // what the way starts at, O_PATH; -1: at our root, or it is empty
	fromID  identity // of from
	dir     int      // O_PATH; -1: nothing is known
	id      identity
	zone    zone
	real    []byte // its path
	version uint64 // of Broker.moved
	since   int64
	used    uint64 // the call that it was of use to
}

// identity tells directories apart that are held open.
type identity struct {
	mount, ino   uint64
	major, minor uint32
}

func identify(st *unix.Statx_t) identity {
	return identity{mount: st.Mnt_id, ino: st.Ino, major: st.Dev_major, minor: st.Dev_minor}
}

func newKnown() (k known) {
	for i := range k.callers {
		k.callers[i].proc = -1
	}
	for i := range k.places {
		k.places[i] = knownPlace{from: -1, dir: -1, real: make([]byte, 0, maxPath)}
	}
	return k
}

// forget closes what is held.
func (k *known) forget() {
	for i := range k.callers {
		k.callers[i].is(0)
	}
	for i := range k.places {
		k.places[i].drop()
	}
}

// is makes an entry one for a caller and reports whether it was.
func (c *caller) is(pid uint32) bool {
	if c.pid == pid {
		return true
	}
	if c.proc >= 0 {
		closeFD(c.proc)
	}
	c.pid, c.proc = pid, -1
	return false
}

func (p *knownPlace) drop() {
	for _, fd := range []*int{&p.from, &p.dir} {
		if *fd >= 0 {
			closeFD(*fd)
		}
		*fd = -1
	}
}

// way splits a text into the way to a directory and a name in it, and reports whether what
// the way leads to may be known.
func (s *slot) way() (way []byte, ok bool) {
	text := s.text[:s.size]
	at := bytes.LastIndexByte(text, '/') + 1
	if at > knownText || at == len(text) || len(text)-at > maxName {
		return nil, false
	}
	if name := text[at:]; name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.') {
		return nil, false
	}
	return text[:at], true
}

// recall makes a known directory the slot's, and the last name its name. It reports whether
// it did; the text is as it was if not.
func (w *worker) recall(s *slot, dirfd int32) bool {
	way, ok := s.way()
	if !ok {
		return false
	}
	switch {
	case s.text[0] == '/':
		s.start = fromRoot
	case dirfd >= 0 || dirfd == atCWD:
		s.start = dirfd
	default:
		return false
	}
	s.version = w.b.moved.Load()
	p := w.known.find(w.note.pid, s.start, way)
	if p == nil || now()-p.since >= int64(believed) || !w.leadsTo(p) {
		return false
	}
	name := s.text[len(way):s.size]
	s.setName(name, false)
	s.enter(p.dir, true)
	s.mount, s.zone, s.reach = p.id.mount, p.zone, copy(s.real[:], p.real)
	s.start, s.recalled, p.used = nowhere, len(way), w.note.id
	return true
}

// find finds the place of a way.
func (k *known) find(pid uint32, start int32, way []byte) *knownPlace {
	if start == fromRoot {
		pid = 0
	}
	for i := range k.places {
		p := &k.places[i]
		if p.dir >= 0 && p.pid == pid && p.start == start && bytes.Equal(p.text[:p.size], way) {
			return p
		}
	}
	return nil
}

// leadsTo reports whether the way to a place leads there now.
func (w *worker) leadsTo(p *knownPlace) bool {
	if !w.b.moving.TryRLock() {
		return false // all that is known is about to be worthless
	}
	defer w.b.moving.RUnlock()
	if p.version != w.b.moved.Load() {
		return false
	}
	way := p.text[:p.size]
	if p.start == fromRoot {
		return w.looksLike(w.b.root, append(w.known.path[:0], bytes.TrimLeft(way, "/")...), p.id)
	}
	c := &w.known.callers[w.note.pid%knownCallers]
	if c.pid != w.note.pid || c.proc < 0 {
		return false
	}
	start := append(w.known.path[:0], "cwd/"...)
	if p.start != atCWD {
		start = append(decimal(append(w.known.path[:0], "fd/"...), int(p.start)), '/')
	}
	if p.from < 0 {
		return w.looksLike(c.proc, start, p.id)
	}
	return w.looksLike(c.proc, start, p.fromID) && w.looksLike(p.from, append(w.known.path[:0], way...), p.id)
}

// looksLike reports whether a path leads to a directory. Links of the sandbox must not be
// on it.
func (w *worker) looksLike(dir int, path []byte, id identity) bool {
	path = append(path, 0)
	return statx(dir, &path[0], 0, unix.STATX_MNT_ID|unix.STATX_INO, &w.stat) == 0 && identify(&w.stat) == id
}

// remember keeps the directory of a slot that was gone straight to and judged, and the one that
// the way there started at. w.stat is of the first.
func (w *worker) remember(s *slot) {
	k, way, id := &w.known, s.text[:s.size], identify(&w.stat)
	c := &k.callers[w.note.pid%knownCallers]
	switch {
	case s.keep || s.start == nowhere || s.zone != guarded && s.zone != private || len(way) > knownText || climbs(way):
		return
	case s.start == fromRoot:
	case !c.is(w.note.pid):
		return // it may be one that asks once
	case c.proc < 0:
		w.proc = append(decimal(w.proc[:0], int(w.note.pid)), 0)
		fd, e := openat(w.b.proc, &w.proc[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if e != 0 {
			return
		}
		if !w.valid() {
			closeFD(fd)
			return
		}
		c.proc = fd
	}
	if s.from >= 0 {
		if e := statx(s.from, &nothing[0], unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_INO, &w.stat); e != 0 {
			return
		}
		if z := w.b.mounts.zones[w.stat.Mnt_id]; z != guarded && z != private {
			return // links are made there without asking
		}
	}
	p := k.find(w.note.pid, s.start, way)
	if p != nil && p.used == w.note.id {
		return // the other slot is there
	}
	for i := 0; p == nil; i++ {
		p, k.next = &k.places[k.next], (k.next+1)%knownPlaces
		if p.dir >= 0 && p.used == w.note.id && i < knownPlaces {
			p = nil // the other slot is there
		}
	}
	p.drop()
	p.pid, p.start, p.size = w.note.pid, s.start, copy(p.text[:], way)
	if s.start == fromRoot {
		p.pid = 0
	}
	p.dir, p.id, p.zone, p.version, p.real = s.dir, id, s.zone, s.version, append(p.real[:0], s.place()...)
	p.from, p.fromID = s.from, identify(&w.stat)
	p.since, p.used = now(), w.note.id
	s.keep, s.from = true, -1
}

// climbs reports whether a way has a name "..", so that it leads through other directories
// than those it says.
func climbs(way []byte) bool {
	for len(way) > 0 {
		end := bytes.IndexByte(way, '/')
		if end < 0 {
			end = len(way)
		}
		if end == 2 && way[0] == '.' && way[1] == '.' {
			return true
		}
		way = way[min(end+1, len(way)):]
	}
	return false
}

// stir has to come before a directory or a symlink comes to a name, and settle after it: in
// between nobody looks where a way leads, and what was known before is worthless.
func (b *Broker) stir() { b.moving.Lock() }

func (b *Broker) settle() {
	b.moved.Add(1)
	b.moving.Unlock()
}
