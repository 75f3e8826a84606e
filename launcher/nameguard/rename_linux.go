package nameguard

import "golang.org/x/sys/unix"

// rename moves an entry. What it moves is looked at before, because the rules differ for
// plain files and directories; so nothing may put another kind of entry in its place in
// between. All that makes other entries than plain files is ours, and takes turns. That a
// directory was not replaced by a file a slash behind its name says.
//
// Where it is counts as well for a directory: see Rules.CheckMove.
func (w *worker) rename(fromFD int32, from uint64, toFD int32, to uint64, flags uint32) verdict {
	const known = unix.RENAME_NOREPLACE | unix.RENAME_EXCHANGE
	if flags&^known != 0 || flags&known == known {
		return fail(unix.EINVAL)
	}
	a := w.place(&w.old, fromFD, from)
	if a.kind != going && a.kind != passing {
		return a
	}
	b := w.place(&w.new, toFD, to)
	switch {
	case b.kind != going && b.kind != passing:
		return b
	case a.kind != b.kind:
		return fail(unix.EXDEV) // one lies where the sandbox acts by itself
	case a.kind == passing:
		return a
	}
	switch {
	case w.old.mount != w.new.mount:
		return fail(unix.EXDEV)
	case w.old.dots():
		return fail(unix.EBUSY)
	case w.new.dots() && flags&unix.RENAME_NOREPLACE != 0:
		return fail(unix.EEXIST)
	case w.new.dots():
		return fail(unix.EBUSY)
	}
	w.b.moves.Lock()
	defer w.b.moves.Unlock()
	src, v := w.entry(&w.old)
	if v.kind != going {
		return v
	}
	if src == unix.S_IFDIR || flags&unix.RENAME_EXCHANGE != 0 {
		// While we came to the other place, and waited, the folders on the way may have moved
		// to where fewer rules hold. From here on they stay.
		for _, s := range []*slot{&w.old, &w.new} {
			if v := w.judge(s); v.kind != going {
				return fail(unix.EACCES)
			}
		}
	}
	if src == 0 {
		return fail(unix.ENOENT)
	}
	dst, v := w.entry(&w.new)
	if v.kind != going {
		return v
	}
	exchange := flags&unix.RENAME_EXCHANGE != 0
	switch {
	case exchange && dst == 0:
		return fail(unix.ENOENT)
	case flags&unix.RENAME_NOREPLACE != 0 && dst != 0:
		return fail(unix.EEXIST)
	}
	if v := w.mayMove(&w.old, &w.new, src); v.kind != going {
		return v
	}
	if exchange {
		if v := w.mayMove(&w.new, &w.old, dst); v.kind != going {
			return v
		}
		w.new.slash = w.new.slash || dst == unix.S_IFDIR
	}
	w.old.slash = w.old.slash || src == unix.S_IFDIR
	if src != unix.S_IFREG || exchange {
		w.b.stir()
		defer w.b.settle()
	}
	return result(renameat2(w.old.dir, w.old.full(), w.new.dir, w.new.full(), flags))
}

// entry is the kind of an entry; zero: there is none. A mount point is busy: see
// isMountPoint.
func (w *worker) entry(s *slot) (uint16, verdict) {
	switch e := statx(s.dir, s.at(), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID|unix.STATX_TYPE, &w.stat); e {
	case 0:
	case unix.ENOENT:
		return 0, verdict{}
	default:
		return 0, fail(e)
	}
	kind := w.stat.Mode & unix.S_IFMT
	if w.stat.Mnt_id != s.mount || kind == unix.S_IFDIR && w.b.mounts.above[string(w.path(s))] {
		return 0, fail(unix.EBUSY)
	}
	return kind, verdict{}
}

// mayMove asks the rules about the way of one entry from one place to another.
func (w *worker) mayMove(from, to *slot, kind uint16) verdict {
	away, here := OpMoveAway, OpMoveHere
	switch kind {
	case unix.S_IFDIR:
		here = OpMoveDirHere
	case unix.S_IFREG:
		away, here = OpMoveFileAway, OpMoveFileHere
	}
	if from.zone == guarded {
		if rule := w.b.rules.Check(from.place(), from.last(), away); rule != nil {
			return w.deny(from, rule, actionRemove)
		}
	}
	if to.zone != guarded {
		return verdict{}
	}
	rule := w.b.rules.Check(to.place(), to.last(), here)
	if rule == nil && kind == unix.S_IFDIR {
		rule = w.b.rules.CheckMove(from.place(), from.last(), to.place(), to.last())
	}
	if rule != nil {
		return w.deny(to, rule, actionCreate)
	}
	return verdict{}
}

// path is that of the entry itself.
func (w *worker) path(s *slot) []byte {
	n := copy(w.text[:], s.place())
	if n > 1 {
		n += copy(w.text[n:], "/")
	}
	return w.text[:n+copy(w.text[n:], s.last())]
}
