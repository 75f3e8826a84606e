package nameguard

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSocket is the room for a path in an address: struct sockaddr_un.
const maxSocket = 108

// bind makes the name of a Unix socket, where the address is one. All other addresses, and
// names that have no place in a folder, are the kernel's: should the address be another
// by the time it reads it, Landlock refuses a new name.
func (w *worker) bind(fd int32, addr uint64, size uint32) verdict {
	const family = int(unsafe.Offsetof(unix.RawSockaddrUnix{}.Path))
	if size <= uint32(family) || size > uint32(family+maxSocket) {
		return verdict{kind: passing}
	}
	var raw [family + maxSocket + 1]byte
	n, e := readMemory(int(w.note.pid), addr, raw[:size])
	if e != 0 || n != int(size) {
		return fail(unix.EFAULT)
	}
	if !w.valid() {
		return verdict{kind: gone}
	}
	path := raw[family:size]
	if raw[0] != unix.AF_UNIX || raw[1] != 0 || path[0] == 0 {
		return verdict{kind: passing}
	}
	if end := bytes.IndexByte(path, 0); end >= 0 {
		path = path[:end]
	}
	s := &w.new
	s.reset()
	s.size = copy(s.text[:], path)
	if s.text[0] != '/' {
		if v := w.base(s, atCWD); v.kind != going {
			return v
		}
	}
	if !w.valid() {
		return verdict{kind: gone}
	}
	v := w.resolve(s, false)
	switch {
	case v.kind != going:
		return v
	case s.own >= 0:
		return fail(unix.EINVAL)
	}
	if v := w.mayMake(s, OpMakeOther); v.kind != going {
		if v.kind == failing && v.err == unix.EEXIST {
			v.err = unix.EADDRINUSE
		}
		return v
	}
	return w.bindAt(s, fd)
}

// bindAt binds the caller's socket at a place. There is no call that takes a directory, so
// this thread goes there, and names the socket by the last name alone.
func (w *worker) bindAt(s *slot, fd int32) verdict {
	if s.named+1 > maxSocket || s.slash {
		return fail(unix.ENAMETOOLONG)
	}
	sock, e := w.fetch(int(w.note.pid), fd)
	if e != 0 {
		return fail(e)
	}
	defer closeFD(sock)
	w.takeMask()
	w.b.moves.Lock()
	defer w.b.moves.Unlock()
	if err := unix.Fchdir(s.dir); err != nil {
		return fail(unix.EACCES)
	}
	raw := struct {
		family uint16
		path   [maxSocket]byte
	}{family: unix.AF_UNIX}
	copy(raw.path[:], s.last())
	size := unsafe.Offsetof(raw.path) + uintptr(s.named) + 1
	_, _, e = unix.Syscall(unix.SYS_BIND, uintptr(sock), uintptr(unsafe.Pointer(&raw)), size) //nolint:gosec // what the system call takes
	if err := unix.Fchdir(w.b.root); err != nil && e == 0 {
		e = unix.EIO
	}
	return result(e)
}
