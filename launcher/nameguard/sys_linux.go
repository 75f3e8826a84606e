package nameguard

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls as the workers make them: with paths that end with a zero byte in buffers
// of the worker's own, so that nothing is allocated. x/sys copies each path.

func openat(dir int, path *byte, flags int, mode uint32) (int, unix.Errno) {
	fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(flags|unix.O_LARGEFILE), uintptr(mode), 0, 0) //nolint:gosec // what the system call takes
	return int(fd), e
}

func openat2(dir int, path *byte, how *unix.OpenHow) (int, unix.Errno) {
	fd, _, e := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(how)), unix.SizeofOpenHow, 0, 0) //nolint:gosec // what the system call takes
	return int(fd), e
}

func readlinkat(dir int, path *byte, buf []byte) (int, unix.Errno) {
	n, _, e := unix.Syscall6(unix.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0) //nolint:gosec // what the system call takes
	return int(n), e
}

func statx(dir int, path *byte, flags int, mask uint32, st *unix.Statx_t) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(flags|unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT), uintptr(mask), uintptr(unsafe.Pointer(st)), 0) //nolint:gosec // what the system call takes
	return e
}

func mkdirat(dir int, path *byte, mode uint32) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_MKDIRAT, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(mode)) //nolint:gosec // what the system call takes
	return e
}

func mknodat(dir int, path *byte, mode uint32) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_MKNODAT, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(mode), 0, 0, 0) //nolint:gosec // what the system call takes
	return e
}

func symlinkat(target *byte, dir int, path *byte) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_SYMLINKAT, uintptr(unsafe.Pointer(target)), uintptr(dir), uintptr(unsafe.Pointer(path))) //nolint:gosec // what the system call takes
	return e
}

func linkat(from int, path *byte, to int, name *byte, flags int) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_LINKAT, uintptr(from), uintptr(unsafe.Pointer(path)), uintptr(to), uintptr(unsafe.Pointer(name)), uintptr(flags), 0) //nolint:gosec // what the system call takes
	return e
}

func renameat2(from int, path *byte, to int, name *byte, flags uint32) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_RENAMEAT2, uintptr(from), uintptr(unsafe.Pointer(path)), uintptr(to), uintptr(unsafe.Pointer(name)), uintptr(flags), 0) //nolint:gosec // what the system call takes
	return e
}

func unlinkat(dir int, path *byte, flags int) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_UNLINKAT, uintptr(dir), uintptr(unsafe.Pointer(path)), uintptr(flags)) //nolint:gosec // what the system call takes
	return e
}

func fcntl(fd, cmd, arg int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_FCNTL, uintptr(fd), uintptr(cmd), uintptr(arg))
	return int(n), e
}

// closeFD closes one of ours. That of a file may have to be written out first.
func closeFD(fd int) {
	_, _, _ = unix.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

func read(fd int, buf []byte) (int, unix.Errno) {
	n, _, e := unix.Syscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf))) //nolint:gosec // what the system call takes
	return int(n), e
}

// readMemory reads from the memory of a process, as much as there is up to len(buf).
func readMemory(pid int, addr uint64, buf []byte) (int, unix.Errno) {
	local := unix.Iovec{Base: &buf[0]}
	local.SetLen(len(buf))
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(buf)}
	n, _, e := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0) //nolint:gosec // what the system call takes
	return int(n), e
}

// nothing is the empty path, for what has AT_EMPTY_PATH.
var nothing = [1]byte{}

// decimal appends a number to buf.
func decimal(buf []byte, n int) []byte {
	var digits [20]byte
	at := len(digits)
	for {
		at--
		digits[at] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return append(buf, digits[at:]...)
		}
	}
}
