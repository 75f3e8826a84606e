package nameguard

import "golang.org/x/sys/unix"

// place reads a path of the caller and finds where it leads, without following the last
// name.
func (w *worker) place(s *slot, dirfd int32, addr uint64) verdict {
	if v := w.readPath(s, dirfd, addr, true); v.kind != going {
		return v
	}
	v := w.resolve(s, false)
	if v.kind == going && s.own >= 0 {
		return verdict{kind: passing} // no entry there can be made or moved
	}
	return v
}

// mayMake asks the rules about a new entry.
func (w *worker) mayMake(s *slot, op Op) verdict {
	if s.zone != guarded || s.dots() {
		return verdict{}
	}
	rule := w.b.rules.Check(s.place(), s.last(), op)
	if rule == nil {
		return verdict{}
	}
	// "It is there already" is the answer that programs go on from.
	switch e := statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat); e {
	case 0:
		return fail(unix.EEXIST)
	case unix.ENOENT:
		return w.deny(s, rule, actionCreate)
	default:
		return fail(e)
	}
}

func (w *worker) mkdir(dirfd int32, addr uint64, mode uint32) verdict {
	s := &w.new
	if v := w.place(s, dirfd, addr); v.kind != going {
		return v
	}
	if v := w.mayMake(s, OpMakeDir); v.kind != going {
		return v
	}
	w.takeMask()
	w.b.moves.Lock()
	defer w.b.moves.Unlock()
	return result(mkdirat(s.dir, s.full(), mode&0o7777))
}

func (w *worker) mknod(dirfd int32, addr uint64, mode uint32) verdict {
	op := OpMakeOther
	switch mode & unix.S_IFMT {
	case 0, unix.S_IFREG:
		op = OpWrite
	case unix.S_IFIFO, unix.S_IFSOCK:
	case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFDIR:
		return fail(unix.EPERM)
	default:
		return fail(unix.EINVAL)
	}
	s := &w.new
	if v := w.place(s, dirfd, addr); v.kind != going {
		return v
	}
	if v := w.mayMake(s, op); v.kind != going {
		return v
	}
	w.takeMask()
	w.b.moves.Lock()
	defer w.b.moves.Unlock()
	return result(mknodat(s.dir, s.full(), mode&(unix.S_IFMT|0o7777)))
}

func (w *worker) symlink(target uint64, dirfd int32, addr uint64) verdict {
	// The text of the link first: its slot is free until the end.
	w.old.reset()
	if v := w.readText(&w.old, target); v.kind != going {
		return v
	}
	if w.old.size == 0 {
		return fail(unix.ENOENT)
	}
	w.old.text[w.old.size] = 0
	s := &w.new
	if v := w.place(s, dirfd, addr); v.kind != going {
		return v
	}
	if v := w.mayMake(s, OpMakeOther); v.kind != going {
		return v
	}
	w.b.moves.Lock()
	defer w.b.moves.Unlock()
	w.b.stir()
	defer w.b.settle()
	return result(symlinkat(&w.old.text[0], s.dir, s.full()))
}

// linkNames makes a hard link. The file must not be one that may not be written under its
// own name, or the link would be a way to write it.
func (w *worker) linkNames(fromFD int32, from uint64, toFD int32, to uint64, flags uint32) verdict {
	if flags&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return fail(unix.EINVAL)
	}
	v := w.source(fromFD, from, flags)
	if v.kind != going && v.kind != passing {
		return v
	}
	outside := v.kind == passing
	s := &w.new
	if v := w.place(s, toFD, to); v.kind != going {
		// Both in trees where the sandbox acts by itself: that is the kernel's. One of
		// them: it would not be one file system.
		if v.kind == passing && !outside && w.old.own < 0 {
			return w.apart(s)
		}
		return v // of a descriptor the kernel knows better what file it is
	}
	if outside {
		return w.apart(s)
	}
	w.b.moves.Lock()
	defer w.b.moves.Unlock()
	if w.old.own >= 0 {
		return w.linkOwn(s)
	}
	// It may be another than was found, and is what is held from here on.
	fd, e := openat(w.old.dir, w.old.at(), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if e != 0 {
		return fail(e)
	}
	defer closeFD(fd)
	if e := statx(fd, &nothing[0], unix.AT_EMPTY_PATH, unix.STATX_TYPE, &w.stat); e != 0 {
		return fail(e)
	}
	return w.linkOpen(fd, w.stat.Mode&unix.S_IFMT, s)
}

// linkOpen gives what is held open one more name. A plain file is one there like any other that
// is made or moved there: git links each object of a submodule to its name.
func (w *worker) linkOpen(fd int, kind uint16, s *slot) verdict {
	op := OpMakeOther
	if kind == unix.S_IFREG {
		op = OpMoveFileHere
	}
	if v := w.mayMake(s, op); v.kind != going {
		return v
	}
	if kind == unix.S_IFLNK {
		w.b.stir()
		defer w.b.settle()
	}
	w.proc = append(decimal(w.proc[:0], fd), 0)
	return result(linkat(w.b.self, &w.proc[0], s.dir, s.full(), unix.AT_SYMLINK_FOLLOW))
}

// apart says why a file is not linked to a place in another tree: the first of what the
// kernel would find.
func (w *worker) apart(to *slot) verdict {
	if w.old.own < 0 {
		if e := statx(w.old.dir, w.old.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat); e != 0 {
			return fail(e)
		}
	}
	if to.own < 0 && statx(to.dir, to.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat) == 0 {
		return fail(unix.EEXIST)
	}
	return fail(unix.EXDEV)
}

// source finds the file that is to be linked.
func (w *worker) source(dirfd int32, addr uint64, flags uint32) verdict {
	s := &w.old
	v := w.readPath(s, dirfd, addr, true)
	if v.kind == failing && v.err == unix.ENOENT || v.kind == going && s.size == 0 {
		if flags&unix.AT_EMPTY_PATH == 0 || dirfd < 0 {
			return fail(unix.ENOENT)
		}
		s.own, s.whose = int(dirfd), int(w.note.pid)
		return verdict{}
	}
	for v.kind == going {
		if v = w.resolve(s, false); v.kind != going || s.own >= 0 {
			break
		}
		e := statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat)
		if e != 0 {
			return fail(e)
		}
		kind := w.stat.Mode & unix.S_IFMT
		if s.slash && kind != unix.S_IFDIR {
			return fail(unix.ENOTDIR)
		}
		if kind == unix.S_IFLNK && flags&unix.AT_SYMLINK_FOLLOW != 0 {
			v = w.mustFollow(s)
			continue
		}
		if s.zone == guarded && !s.dots() {
			if rule := w.b.rules.Check(s.place(), s.last(), OpWrite); rule != nil {
				return w.deny(s, rule, actionLink)
			}
		}
		return verdict{}
	}
	if s.own >= 0 && v.kind == going && flags&unix.AT_SYMLINK_FOLLOW == 0 {
		return fail(unix.EXDEV) // the magic link itself
	}
	return v
}

// linkOwn gives a name to what the caller has open, a file without one for example.
func (w *worker) linkOwn(s *slot) verdict {
	fd, v := w.openOwn(w.old.whose, int32(w.old.own), 0) //nolint:gosec // a descriptor's number
	if v.kind != going {
		return v
	}
	defer closeFD(fd)
	if !w.valid() {
		return verdict{kind: gone}
	}
	if e := statx(fd, &nothing[0], unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_TYPE|unix.STATX_NLINK, &w.stat); e != 0 {
		return fail(e)
	}
	kind := w.stat.Mode & unix.S_IFMT
	switch w.b.mounts.zones[w.stat.Mnt_id] {
	case guarded:
		if v := w.mayReopen(&w.old, fd, w.stat.Nlink); v.kind != going {
			return v
		}
	case private:
	default:
		return w.apart(s)
	}
	return w.linkOpen(fd, kind, s)
}

// remove removes an entry, where the rules are about that, too.
func (w *worker) remove(dirfd int32, addr uint64, flags uint32) verdict {
	if flags&^unix.AT_REMOVEDIR != 0 {
		return fail(unix.EINVAL)
	}
	s := &w.new
	if v := w.place(s, dirfd, addr); v.kind != going {
		return v
	}
	if s.zone == guarded && !s.dots() {
		if rule := w.b.rules.Check(s.place(), s.last(), OpRemove); rule != nil {
			if e := statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &w.stat); e != 0 {
				return fail(e)
			}
			return w.deny(s, rule, actionRemove)
		}
	}
	// Nothing moves a mount point, so it is one now or never.
	if w.isMountPoint(s) {
		return fail(unix.EBUSY)
	}
	return result(unlinkat(s.dir, s.full(), int(flags)))
}

// isMountPoint reports whether something is mounted at a place of the sandbox. The kernel
// protects what is a mount point for whoever asks, and to us it is none: without this a
// mask could be renamed away, or removed with the file below it.
func (w *worker) isMountPoint(s *slot) bool {
	if statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID|unix.STATX_TYPE, &w.stat) != 0 {
		return false
	}
	return w.stat.Mnt_id != s.mount
}
