package nameguard

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Where a walk is among the entries of the caller's own process, which lead to what it
// has open and not to what a text says.
type ownEntry uint8

const (
	elsewhere ownEntry = iota
	ownProcess
	ownDescriptors
)

// walk goes the way of a slot name by name, and follows its symlinks. Absolute ones start
// at the sandbox's root, and not at ours.
//
// The magic links of a process file system are never followed with our own rights. Those
// of the caller's own process lead where the caller could go itself; all else there is
// left to the kernel and to Landlock.
func (w *worker) walk(s *slot, from int) verdict {
	at := elsewhere
	for {
		for from < s.size && s.text[from] == '/' {
			from++
		}
		if from >= s.size {
			break
		}
		end := bytes.IndexByte(s.text[from:s.size], '/')
		if end < 0 {
			end = s.size
		} else {
			end += from
		}
		if end-from > maxName {
			return fail(unix.ENAMETOOLONG)
		}
		name := s.text[from:end]
		s.text[end] = 0 // it was a slash, or the end
		if at != elsewhere {
			v := w.ownStep(s, &at, name)
			if v.kind != going {
				return v
			}
			from = min(end+1, s.size)
			continue
		}
		v, link := w.step(s, &at, name)
		switch {
		case v.kind != going:
			return v
		case link > 0:
			if v := s.splice(w.link[:link], min(end+1, s.size)); v.kind != going {
				return v
			}
			from = 0
			if s.text[0] == '/' {
				s.enter(w.b.root, true)
			}
		default:
			from = min(end+1, s.size)
		}
	}
	if at == ownDescriptors {
		if n := number(s.last()); n >= 0 {
			s.own = n
			return verdict{}
		}
	}
	if at != elsewhere {
		return verdict{kind: passing}
	}
	return verdict{}
}

// step goes into one directory. For a symlink it returns the length of its text, which is
// in w.link.
func (w *worker) step(s *slot, at *ownEntry, name []byte) (verdict, int) {
	if len(name) == 1 && name[0] == '.' {
		return verdict{}, 0
	}
	fd, e := openat(s.dir, &name[0], unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if e != 0 {
		if w.isOwn(s, name) { // for us there is no "self" there
			*at = ownProcess
			return verdict{}, 0
		}
		if s.lost = e == unix.ENOENT; s.lost {
			s.setName(name, false)
		}
		return fail(e), 0
	}
	if e := statx(fd, &nothing[0], unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_TYPE, &w.stat); e != 0 {
		closeFD(fd)
		return fail(e), 0
	}
	z := w.b.mounts.zones[w.stat.Mnt_id]
	switch w.stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if z == process && w.isOwn(s, name) {
			closeFD(fd)
			*at = ownProcess
			return verdict{}, 0
		}
		s.enter(fd, false)
		return verdict{}, 0
	case unix.S_IFLNK:
	default:
		closeFD(fd)
		return fail(unix.ENOTDIR), 0
	}
	defer closeFD(fd)
	if z == process {
		if w.isOwn(s, name) {
			*at = ownProcess
			return verdict{}, 0
		}
		return verdict{kind: passing}, 0
	}
	if s.links++; s.links > maxLinks {
		return fail(unix.ELOOP), 0
	}
	n, e := readlinkat(fd, &nothing[0], w.link[:])
	switch {
	case e != 0:
		return fail(e), 0
	case n == 0:
		return fail(unix.ENOENT), 0
	}
	return verdict{}, n
}

// splice puts the target of a symlink before the rest of a text.
func (s *slot) splice(link []byte, rest int) verdict {
	tail := s.size - rest
	if len(link)+1+tail >= len(s.text) {
		return fail(unix.ENAMETOOLONG)
	}
	copy(s.text[len(link)+1:], s.text[rest:s.size])
	copy(s.text[:], link)
	s.text[len(link)] = '/'
	s.size = len(link) + 1 + tail
	return verdict{}
}

// isOwn reports whether name is, at the root of a process file system, the entry of the
// calling process. What is in there is that of its first thread, or of the calling one where it
// says so: threads can have a working directory and descriptors of their own.
func (w *worker) isOwn(s *slot, name []byte) bool {
	const rootIno = 1
	n := number(name)
	if n < 0 && string(name) != "self" && string(name) != "thread-self" {
		return false
	}
	var st unix.Statx_t
	if statx(s.dir, &nothing[0], unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_INO, &st) != 0 {
		return false
	}
	if w.b.mounts.zones[st.Mnt_id] != process || st.Ino != rootIno {
		return false
	}
	if n >= 0 && n != w.innerPID() {
		return false
	}
	s.whose = int(w.note.pid)
	if string(name) != "thread-self" {
		s.whose = w.groupPID()
	}
	return s.whose > 0
}

// ownStep goes one step among the entries of the caller's own process.
func (w *worker) ownStep(s *slot, at *ownEntry, name []byte) verdict {
	text := string(name) // does not escape
	switch {
	case text == ".":
		return verdict{}
	case *at == ownProcess && text == "fd":
		*at = ownDescriptors
		return verdict{}
	case *at == ownProcess && (text == "cwd" || text == "root"):
		w.proc = append(decimal(w.proc[:0], s.whose), '/')
		w.proc = append(append(w.proc, name...), 0)
	case *at == ownDescriptors && number(name) >= 0:
		w.proc = append(decimal(w.proc[:0], s.whose), "/fd/"...)
		w.proc = append(append(w.proc, name...), 0)
	default:
		return verdict{kind: passing}
	}
	fd, e := openat(w.b.proc, &w.proc[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if e != 0 {
		return fail(e)
	}
	if !w.valid() {
		closeFD(fd)
		return verdict{kind: gone}
	}
	*at = elsewhere
	s.enter(fd, false)
	return verdict{}
}

// number reads a number as names in a process file system are: no sign, no zero before.
// -1 is none.
func number(text []byte) int {
	if len(text) == 0 || len(text) > 9 || text[0] == '0' && len(text) > 1 {
		return -1
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}
