package nameguard

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// scoped are the flags of openat2 by which nothing absolute can lead out of the directory
// that a path starts at; scopes are all flags.
const (
	scoped = unix.RESOLVE_BENEATH | unix.RESOLVE_IN_ROOT
	scopes = scoped | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV | resolveCached

	resolveCached = 0x20 // RESOLVE_CACHED
)

// openHow is openat2. What it is to do stands in memory, where it can change after we have
// read it; so the kernel never does it in our stead, not even to read: it could find a
// file to cut short there. What only the kernel can open fails as if it did not know the
// call, and programs go on with openat.
func (w *worker) openHow(dirfd int32, addr, how, size uint64) verdict {
	flags, mode, resolve, e := w.readHow(how, size)
	if e != 0 {
		return fail(e)
	}
	if flags&unix.O_PATH != 0 {
		return fail(unix.ENOSYS) // such a descriptor cannot be handed over
	}
	s := &w.new
	var v verdict
	if resolve == 0 {
		if v = w.readPath(s, dirfd, addr, !whole(flags)); v.kind == going {
			v = w.openPath(s, flags, mode)
		}
	} else {
		v = w.openScoped(s, dirfd, addr, flags, mode, resolve)
	}
	if v.kind == passing {
		return fail(unix.ENOSYS)
	}
	return v
}

// readHow reads a struct open_how, once, and checks it as the kernel does.
func (w *worker) readHow(addr, size uint64) (flags, mode uint32, resolve uint64, e unix.Errno) {
	switch {
	case size < unix.SizeofOpenHow:
		return 0, 0, 0, unix.EINVAL
	case size > uint64(len(w.text)):
		return 0, 0, 0, unix.E2BIG
	}
	raw := w.text[:size]
	if n, e := readMemory(int(w.note.pid), addr, raw); e != 0 || n != len(raw) {
		return 0, 0, 0, unix.EFAULT
	}
	for _, c := range raw[unix.SizeofOpenHow:] {
		if c != 0 {
			return 0, 0, 0, unix.E2BIG
		}
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[8*i:]) }
	f, m, resolve := word(0), word(1), word(2)
	makes := f&(unix.O_CREAT|tmpfileBit) != 0
	switch {
	case f&^uint64(validFlags|unix.O_PATH|largeFile) != 0, resolve&^scopes != 0, resolve&scoped == scoped:
		return 0, 0, 0, unix.EINVAL
	case m&^0o7777 != 0, m != 0 && !makes:
		return 0, 0, 0, unix.EINVAL
	}
	return uint32(f), uint32(m), resolve, 0 //nolint:gosec // bounded above
}

// openScoped opens a path under the flags that keep it from leading astray. They hold for
// the way to the directory; a symlink as the last name is refused, whatever they say.
func (w *worker) openScoped(s *slot, dirfd int32, addr uint64, flags, mode uint32, resolve uint64) verdict {
	s.reset()
	if v := w.readText(s, addr); v.kind != going {
		return v
	}
	if s.size == 0 {
		return fail(unix.ENOENT)
	}
	absolute := s.text[0] == '/'
	switch {
	case absolute && resolve&unix.RESOLVE_BENEATH != 0:
		return fail(unix.EXDEV)
	case absolute && resolve&unix.RESOLVE_IN_ROOT == 0:
		s.enter(w.b.root, true)
	default:
		if v := w.base(s, dirfd); v.kind != going {
			return v
		}
	}
	if !w.valid() {
		return verdict{kind: gone}
	}
	size, directory := s.size, s.trailing()
	if e := s.split(directory || whole(flags)); e != 0 {
		return fail(e)
	}
	if s.dots() {
		// It leads somewhere else than into a name: the flags are to look at it as well.
		s.size = size
		s.setName(dot, false)
	}
	from := 0
	for from < s.size && s.text[from] == '/' {
		from++
	}
	if from < s.size {
		// Past the flags that say that nothing absolute is followed the way would lead
		// through our own root.
		w.how = unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve&^resolveCached | unix.RESOLVE_NO_MAGICLINKS}
		if resolve&scoped == 0 {
			w.how.Resolve |= unix.RESOLVE_NO_SYMLINKS
		}
		s.text[s.size] = 0
		fd, e := openat2(s.dir, &s.text[from], &w.how)
		// A way with ".." in it may have been left while something was moved, anywhere
		// on the host: openat2(2) has callers try again.
		for tries := 0; e == unix.EAGAIN && tries < 64; tries++ {
			fd, e = openat2(s.dir, &s.text[from], &w.how)
		}
		if e != 0 {
			return fail(e)
		}
		s.enter(fd, false)
	}
	if v := w.judge(s); v.kind != going {
		return v
	}
	v := w.openAt(s, flags, mode)
	if v.kind == going {
		return fail(unix.ELOOP)
	}
	return v
}
