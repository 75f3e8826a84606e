package nameguard

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// atCWD is AT_FDCWD as it stands in a register.
const atCWD = int32(unix.AT_FDCWD)

// pageSize is what memory is readable or not by.
var pageSize = uint64(os.Getpagesize())

// firstRead is how much of a path is read at once; most are shorter.
const firstRead = 256

// valid reports whether the call that is served still waits. What was read by the number
// of its thread before was that thread's.
func (w *worker) valid() bool { return w.b.listener.valid(&w.note.id) == 0 }

// readPath reads the path at an address of the caller, once, and the directory that it is
// relative to. With named it will be asked for the place of its last name, which may be known.
func (w *worker) readPath(s *slot, dirfd int32, addr uint64, named bool) verdict {
	s.reset()
	if v := w.readText(s, addr); v.kind != going {
		return v
	}
	if (!named || !w.recall(s, dirfd)) && s.size > 0 && s.text[0] != '/' {
		if v := w.base(s, dirfd); v.kind != going {
			return v
		}
	}
	if !w.valid() {
		return verdict{kind: gone}
	}
	return verdict{}
}

// readText reads a text that ends with a zero byte. Never past the end of a page in one
// go, so that a page that is not there behind the text does no harm.
func (w *worker) readText(s *slot, addr uint64) verdict {
	s.size = 0
	for s.size < maxPath {
		n := min(uint64(firstRead), pageSize-(addr+uint64(s.size))%pageSize, uint64(maxPath-s.size)) //nolint:gosec // bounded above
		got, e := readMemory(int(w.note.pid), addr+uint64(s.size), s.text[s.size:s.size+int(n)])     //nolint:gosec // bounded above
		if e != 0 || got <= 0 {
			return fail(unix.EFAULT)
		}
		if end := bytes.IndexByte(s.text[s.size:s.size+got], 0); end >= 0 {
			s.size += end
			return verdict{}
		}
		s.size += got
	}
	return fail(unix.ENAMETOOLONG)
}

// base opens what a relative path starts at.
func (w *worker) base(s *slot, dirfd int32) verdict {
	fd, v := w.openOwn(int(w.note.pid), dirfd, unix.O_DIRECTORY)
	if v.kind == going {
		s.enter(fd, false)
	}
	return v
}

// openOwn opens a descriptor of a thread of the caller's process, or its working directory, as
// O_PATH.
func (w *worker) openOwn(tid int, dirfd int32, flags int) (int, verdict) {
	w.proc = decimal(w.proc[:0], tid)
	if dirfd == atCWD {
		w.proc = append(w.proc, "/cwd"...)
	} else {
		if dirfd < 0 {
			return -1, fail(unix.EBADF)
		}
		w.proc = append(w.proc, "/fd/"...)
		w.proc = decimal(w.proc, int(dirfd))
	}
	w.proc = append(w.proc, 0)
	fd, e := openat(w.b.proc, &w.proc[0], unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	switch {
	case e == 0:
		return fd, verdict{}
	case e == unix.ENOENT && dirfd != atCWD:
		e = unix.EBADF
	}
	return -1, fail(e)
}

// status reads the first part of the caller's /proc/TID/status, which has the umask and
// the numbers in the sandbox.
func (w *worker) status() []byte {
	w.proc = append(decimal(w.proc[:0], int(w.note.pid)), "/status\x00"...)
	fd, e := openat(w.b.proc, &w.proc[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if e != 0 {
		return nil
	}
	defer closeFD(fd)
	n, e := read(fd, w.text[:])
	if e != 0 {
		return nil
	}
	return w.text[:n]
}

// field finds the value of one line of a status.
func field(status []byte, name string) []byte {
	for len(status) > 0 {
		line := status
		if end := bytes.IndexByte(status, '\n'); end >= 0 {
			line, status = status[:end], status[end+1:]
		} else {
			status = nil
		}
		if len(line) > len(name) && string(line[:len(name)]) == name && line[len(name)] == ':' {
			return bytes.TrimLeft(line[len(name)+1:], " \t")
		}
	}
	return nil
}

// innerPID is the process id of the caller as it is in the sandbox's own process file
// system; -1 where it cannot be told.
func (w *worker) innerPID() int { return w.inner("NStgid") }

// innerTID is the number of the calling thread there.
func (w *worker) innerTID() int { return w.inner("NSpid") }

func (w *worker) inner(name string) int {
	ids := field(w.status(), name)
	if i := bytes.LastIndexAny(ids, " \t"); i >= 0 {
		ids = ids[i+1:]
	}
	return number(ids)
}

// groupPID is the number here of the process that the calling thread is of.
func (w *worker) groupPID() int { return number(field(w.status(), "Tgid")) }
