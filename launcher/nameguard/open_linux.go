package nameguard

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// open opens a file for a call of which the flags stood in registers.
func (w *worker) open(dirfd int32, addr uint64, flags, mode uint32) verdict {
	s := &w.new
	if v := w.readPath(s, dirfd, addr, !whole(flags)); v.kind != going {
		return v
	}
	return w.openPath(s, flags, mode&0o7777)
}

// openPath opens what the text of the slot leads to.
func (w *worker) openPath(s *slot, flags, mode uint32) verdict {
	if flags&unix.O_CREAT != 0 && flags&unix.O_DIRECTORY != 0 {
		return fail(unix.EINVAL) // older kernels made a plain file
	}
	for {
		v := w.openOnce(s, flags, mode)
		if v.kind == passing && s.own < 0 && s.zone == free && flags&unix.O_NOFOLLOW == 0 && flags&(unix.O_CREAT|unix.O_EXCL) != unix.O_CREAT|unix.O_EXCL && !whole(flags) {
			// The sandbox acts by itself here, but a link may lead where it does not.
			if f := w.follow(s); f.kind == going {
				continue
			}
		}
		if v.kind == passing && !continuable(flags) {
			if v = w.openFree(s, flags, mode); v.kind == passing {
				return fail(unix.EACCES)
			}
		}
		if v.kind != going {
			return v
		}
		if v = w.mustFollow(s); v.kind != going {
			return v
		}
	}
}

// whole reports whether the path names a directory in which there will be no name.
func whole(flags uint32) bool { return flags&tmpfileBit != 0 }

// continuable reports whether Landlock covers what the kernel would do by itself, if the
// path that it reads leads elsewhere than the one that was looked at. It does not for
// cutting a file short, unless the file is opened for writing.
func continuable(flags uint32) bool {
	mode := flags & unix.O_ACCMODE
	return flags&unix.O_TRUNC == 0 || mode == unix.O_WRONLY || mode == unix.O_RDWR
}

// openOnce goes the way of the slot and opens what is there. A verdict that is still going
// says that it is a symlink, to be followed.
func (w *worker) openOnce(s *slot, flags, mode uint32) verdict {
	directory := s.trailing()
	if directory && flags&unix.O_CREAT != 0 {
		switch v := w.resolve(s, false); {
		case v.kind == failing:
			return v
		case s.dots() && flags&unix.O_EXCL != 0:
			return fail(unix.EEXIST)
		}
		return fail(unix.EISDIR)
	}
	switch v := w.resolve(s, directory || whole(flags)); {
	case v.kind == failing && v.err == unix.ENOENT && flags&unix.O_CREAT != 0:
		return w.absent(s)
	case v.kind != going:
		return v
	}
	if s.own >= 0 {
		return w.reopen(s, flags)
	}
	return w.openAt(s, flags, mode)
}

// openAt opens what is at the place of the slot.
func (w *worker) openAt(s *slot, flags, mode uint32) verdict {
	reading := flags&writes == 0
	if reading && flags&unix.O_NONBLOCK == 0 && w.isFIFO(s) {
		return verdict{kind: passing} // it waits for the other end
	}
	if v := w.mayOpen(s, flags); v.kind != going {
		return v
	}
	if flags&(unix.O_CREAT|tmpfileBit) != 0 {
		w.takeMask()
	}
	exclusive := flags&unix.O_CREAT != 0 && flags&unix.O_EXCL != 0
	ours := flags
	if !exclusive {
		ours |= unix.O_NONBLOCK // nobody is to make us wait
	}
	fd, e := w.openLast(s, ours, mode)
	switch {
	case e == 0:
		return w.give(fd, flags, exclusive && mode&0o111 == 0, exclusive)
	case e == unix.ELOOP && flags&unix.O_NOFOLLOW == 0 && !exclusive:
		return verdict{} // a link, to be followed
	case flags&unix.O_NONBLOCK != 0:
		return fail(e)
	case e == unix.EAGAIN, e == unix.ENXIO && w.isFIFO(s):
		// Somebody holds a lease, or nobody has the other end yet.
		return w.park(s, flags, mode)
	}
	return fail(e)
}

// openFree opens, in a tree where the sandbox acts by itself, what the kernel may not be left
// to open: a plain file, or a device that is the same for everybody. What a terminal is
// depends on who opens it.
func (w *worker) openFree(s *slot, flags, mode uint32) verdict {
	if s.own >= 0 || s.zone != free {
		return verdict{kind: passing}
	}
	switch e := statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat); {
	case e == unix.ENOENT:
	case e != 0:
		return fail(e)
	default:
		const memory = 1 // the major number of /dev/null and its kin
		kind := w.stat.Mode & unix.S_IFMT
		if kind == unix.S_IFBLK || kind == unix.S_IFCHR && w.stat.Rdev_major != memory {
			return verdict{kind: passing}
		}
	}
	return w.openAt(s, flags, mode)
}

// largeFile is O_LARGEFILE, which x/sys has as zero: a program of 64 bits need not say it.
var largeFile = map[string]uint32{"amd64": 0o100000, "arm64": 0o400000}[runtime.GOARCH]

// validFlags are those that openat takes notice of; openat2 refuses others, but for O_PATH
// and largeFile.
const validFlags = unix.O_ACCMODE | unix.O_CREAT | unix.O_EXCL | unix.O_NOCTTY | unix.O_TRUNC | unix.O_APPEND | unix.O_NONBLOCK | unix.O_SYNC | unix.O_DSYNC |
	unix.O_ASYNC | unix.O_DIRECT | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NOATIME | unix.O_CLOEXEC | unix.O_TMPFILE

// openLast opens the last name, and no link: ELOOP. That is not asked for by O_NOFOLLOW,
// which would be seen in the flags of the open file.
func (w *worker) openLast(s *slot, flags, mode uint32) (int, unix.Errno) {
	w.how = unix.OpenHow{Flags: uint64(flags&validFlags | unix.O_NOCTTY | unix.O_CLOEXEC), Resolve: unix.RESOLVE_NO_SYMLINKS}
	if flags&(unix.O_CREAT|tmpfileBit) != 0 {
		w.how.Mode = uint64(mode)
	}
	return openat2(s.dir, s.at(), &w.how)
}

// mayOpen asks the rules.
func (w *worker) mayOpen(s *slot, flags uint32) verdict {
	if s.zone != guarded || flags&writes == 0 || s.dots() && !whole(flags) {
		return verdict{}
	}
	name := s.last()
	if whole(flags) {
		name = unnamed // what lies below a denied path has no name to ask about
	}
	rule := w.b.rules.Check(s.place(), name, OpWrite)
	switch {
	case w.b.isCanary(s):
		rule = nil // whatever the rules are
	case rule == nil:
		return verdict{}
	}
	if !whole(flags) {
		// What would fail anyway fails as it would.
		e := statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat)
		switch {
		case e != 0 && (e != unix.ENOENT || flags&unix.O_CREAT == 0):
			return fail(e)
		case e == 0 && flags&unix.O_CREAT != 0 && flags&unix.O_EXCL != 0:
			return fail(unix.EEXIST)
		}
	}
	action := actionWrite
	if flags&unix.O_CREAT != 0 {
		action = actionCreate
	}
	return w.deny(s, rule, action)
}

// unnamed stands for a name that no pattern is about.
var unnamed = []byte("#0")

// isFIFO reports whether the place of a slot is a FIFO.
func (w *worker) isFIFO(s *slot) bool {
	return statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat) == 0 && w.stat.Mode&unix.S_IFMT == unix.S_IFIFO
}

// give hands an open file to the caller. At once says that it may go in one step: for a
// moment the file then is open for writing here and the caller runs on, so it must not be
// one that the caller could execute (ETXTBSY). The caller of chmod waits for that moment's
// end, see barrier.
func (w *worker) give(fd int, flags uint32, atOnce, blocking bool) verdict {
	if !blocking && flags&unix.O_NONBLOCK == 0 {
		if _, e := fcntl(fd, unix.F_SETFL, int(flags)); e != 0 {
			closeFD(fd)
			return fail(e)
		}
	}
	to, isSent, e := w.hand(fd, flags, atOnce)
	closeFD(fd)
	w.sending.Store(false)
	switch {
	case e == unix.ENOENT:
		return verdict{kind: gone}
	case e != 0:
		return fail(e)
	case isSent:
		return verdict{kind: sent}
	}
	return verdict{kind: done, val: int64(to)}
}

// hand puts an open file into the caller's table, and reports whether that was the answer as
// well. It is not where the caller was kept on its processor for it.
func (w *worker) hand(fd int, flags uint32, atOnce bool) (to int, isSent bool, e unix.Errno) {
	w.added = addition{id: w.note.id, from: uint32(fd), newFlags: flags & unix.O_CLOEXEC} //nolint:gosec // descriptors are small
	if w.hold() {
		defer w.release()
	} else if atOnce {
		w.added.flags, isSent = unix.SECCOMP_ADDFD_FLAG_SEND, true
		w.sending.Store(true)
	}
	to, e = w.b.listener.add(&w.added)
	return to, isSent, e
}

// barrier waits until no other worker holds a file that it has given away.
func (b *Broker) barrier(self *worker) {
	b.await(self, func(w *worker) *atomic.Bool { return &w.sending })
}

// truncate cuts a file to a length, by its path.
func (w *worker) truncate(addr uint64, size int64) verdict {
	s := &w.new
	if v := w.readPath(s, atCWD, addr, true); v.kind != going {
		return v
	}
	if size < 0 {
		return fail(unix.EINVAL)
	}
	for {
		v := w.truncateOnce(s, size)
		if v.kind == passing && s.own < 0 && s.zone == free {
			if v = w.follow(s); v.kind == going {
				continue
			}
			// No link: the file is one of a private tree, and nothing there has rules.
			v = w.cut(s, size)
		}
		switch {
		case v.kind == passing:
			return fail(unix.EACCES)
		case v.kind != going:
			return v
		}
		if v = w.mustFollow(s); v.kind != going {
			return v
		}
	}
}

func (w *worker) truncateOnce(s *slot, size int64) verdict {
	if v := w.resolve(s, s.trailing()); v.kind != going {
		return v
	}
	if s.own >= 0 {
		return verdict{kind: passing}
	}
	if v := w.mayOpen(s, unix.O_WRONLY); v.kind != going {
		return v
	}
	return w.cut(s, size)
}

// cut cuts what is at the place of the slot; going says that it is a link.
func (w *worker) cut(s *slot, size int64) verdict {
	if s.zone == free {
		switch e := statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat); {
		case e != 0:
			return fail(e)
		case w.stat.Mode&unix.S_IFMT == unix.S_IFCHR:
			return fail(unix.EINVAL) // see openFree
		}
	}
	fd, e := w.openLast(s, unix.O_WRONLY|unix.O_NONBLOCK, 0)
	switch e {
	case 0:
	case unix.ELOOP:
		return verdict{}
	case unix.ENXIO:
		return fail(unix.EINVAL)
	default:
		return fail(e)
	}
	_, _, e = unix.Syscall(unix.SYS_FTRUNCATE, uintptr(fd), uintptr(size), 0) //nolint:gosec // not negative, as was looked at
	closeFD(fd)
	return result(e)
}
