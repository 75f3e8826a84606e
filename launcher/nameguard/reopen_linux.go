package nameguard

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// reopen opens the caller's own descriptor once more, as /proc/self/fd/N, /dev/stdout and
// the like do. A file of the sandbox is opened like any other, by its present name. What
// comes from outside (a terminal that was inherited) is given once more, with the right
// that the caller has already. Pipes and what has no place the kernel may do, since
// Landlock knows no others.
func (w *worker) reopen(s *slot, flags uint32) verdict {
	if flags&unix.O_NOFOLLOW != 0 {
		return fail(unix.ELOOP)
	}
	if flags&unix.O_CREAT != 0 && flags&unix.O_EXCL != 0 {
		return fail(unix.EEXIST)
	}
	n := int32(s.own) //nolint:gosec // at most nine digits
	fd, v := w.openOwn(s.whose, n, 0)
	if v.kind != going {
		return fail(unix.ENOENT)
	}
	defer closeFD(fd)
	if !w.valid() {
		return verdict{kind: gone}
	}
	if e := statx(fd, &nothing[0], unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_TYPE|unix.STATX_NLINK, &w.stat); e != 0 {
		return fail(e)
	}
	kind := w.stat.Mode & unix.S_IFMT
	switch z := w.b.mounts.zones[w.stat.Mnt_id]; {
	case kind == unix.S_IFIFO && z == stranger:
		return verdict{kind: passing}
	case z == free || z == process:
		return verdict{kind: passing}
	case z == stranger && kind == unix.S_IFCHR:
		return w.share(s.whose, n, flags)
	case z == stranger:
		return fail(unix.EACCES)
	case z == guarded:
		if v := w.mayReopen(s, fd, w.stat.Nlink); v.kind != going {
			return v
		}
	}
	w.proc = append(decimal(w.proc[:0], fd), 0)
	ours := int(flags)&^(unix.O_CREAT|unix.O_NOFOLLOW) | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_NONBLOCK
	got, e := openat(w.b.self, &w.proc[0], ours, 0)
	if e != 0 {
		return fail(e)
	}
	return w.give(got, flags, false, false)
}

// mayReopen asks the rules about a file by the name that it has. A file without any name
// is nobody's but the caller's.
func (w *worker) mayReopen(s *slot, fd int, nlink uint32) verdict {
	if nlink == 0 {
		return verdict{}
	}
	w.proc = append(decimal(w.proc[:0], fd), 0)
	n, e := readlinkat(w.b.self, &w.proc[0], w.text[:])
	if e != 0 || n == 0 || n >= maxPath || w.text[0] != '/' {
		return fail(unix.EACCES)
	}
	at := n
	for at > 0 && w.text[at-1] != '/' {
		at--
	}
	s.reach = copy(s.real[:], w.text[:max(at-1, 1)])
	name := w.text[at:n]
	had, removed := bytes.CutSuffix(name, deleted)
	if removed {
		// The file has another name, which may be denied as well. This one is or was its own.
		if v := w.mayWrite(s, had); v.kind != going {
			return v
		}
	}
	return w.mayWrite(s, name)
}

// deleted is what the kernel adds to the path of what has no name there any more.
var deleted = []byte(" (deleted)")

// mayWrite asks the rules about a file by a name in the slot's folder.
func (w *worker) mayWrite(s *slot, name []byte) verdict {
	if len(name) > maxName {
		return fail(unix.EACCES)
	}
	s.setName(name, false)
	if rule := w.b.rules.Check(s.place(), s.last(), OpWrite); rule != nil {
		return w.deny(s, rule, actionWrite)
	}
	return verdict{}
}

// share gives the caller a descriptor of its own, or of its first thread, once more.
func (w *worker) share(tid int, n int32, flags uint32) verdict {
	fd, e := w.fetch(tid, n)
	if e != 0 {
		return fail(unix.EACCES)
	}
	held, e := fcntl(fd, unix.F_GETFL, 0)
	if e != 0 || held&unix.O_PATH != 0 {
		closeFD(fd)
		return fail(unix.EACCES)
	}
	has, wants := uint32(held)&unix.O_ACCMODE, flags&unix.O_ACCMODE //nolint:gosec // flags of open
	if has != unix.O_RDWR && has != wants {
		closeFD(fd)
		return fail(unix.EACCES)
	}
	return w.give(fd, flags, false, true)
}
