package nameguard

import "golang.org/x/sys/unix"

// pidfdThread is PIDFD_THREAD: the descriptor stands for one thread (Linux 6.9).
const pidfdThread = unix.O_EXCL

// fetch copies a descriptor of a thread of the caller's process into our own table. A thread may
// have a table of its own (unshare(2) with CLONE_FILES), in which the number stands for
// something else than in that of the first thread.
func (w *worker) fetch(tid int, n int32) (int, unix.Errno) {
	if !w.b.groups.Load() {
		fd, e := w.copyOf(tid, pidfdThread, n)
		if e != unix.EINVAL {
			return fd, e
		}
		w.b.groups.Store(true)
	}
	fd, e := w.copyOf(w.groupPID(), 0, n)
	if e == 0 && !w.isOf(fd, tid, n) {
		closeFD(fd)
		return -1, unix.EACCES
	}
	return fd, e
}

// copyOf copies a descriptor of a thread, or of a process, while the call waits.
func (w *worker) copyOf(pid, flags int, n int32) (int, unix.Errno) {
	if pid <= 0 {
		return -1, unix.ESRCH
	}
	p, _, e := unix.Syscall(unix.SYS_PIDFD_OPEN, uintptr(pid), uintptr(flags), 0)
	if e != 0 {
		return -1, e
	}
	defer closeFD(int(p))
	if !w.valid() {
		return -1, unix.ESRCH
	}
	fd, _, e := unix.Syscall(unix.SYS_PIDFD_GETFD, p, uintptr(n), 0) //nolint:gosec // a descriptor's number
	if e == unix.EINVAL {
		e = unix.EBADF // not to be taken for a kernel that knows no threads
	}
	return int(fd), e
}

// isOf reports whether what was copied is what a thread has under a number, as far as what it
// leads to says.
func (w *worker) isOf(fd, tid int, n int32) bool {
	theirs, v := w.openOwn(tid, n, 0)
	if v.kind != going {
		return false
	}
	defer closeFD(theirs)
	const mask = unix.STATX_MNT_ID | unix.STATX_INO
	if statx(theirs, &nothing[0], unix.AT_EMPTY_PATH, mask, &w.stat) != 0 {
		return false
	}
	id := identify(&w.stat)
	return statx(fd, &nothing[0], unix.AT_EMPTY_PATH, mask, &w.stat) == 0 && identify(&w.stat) == id && w.valid()
}
