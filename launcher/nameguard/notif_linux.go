package nameguard

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The structures of seccomp_unotify(2), which x/sys does not have. They are the same on
// every architecture of 64 bits.

// notif is one call that waits for an answer: struct seccomp_notif.
type notif struct {
	id    uint64
	pid   uint32 // of the thread, in our own pid namespace
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// word is an argument of 32 bits: the kernel drops the upper half.
func (n *notif) word(i int) uint32 { return uint32(n.args[i] & 0xffffffff) }

// fd is an argument that is a descriptor, or AT_FDCWD.
func (n *notif) fd(i int) int32 { return int32(n.word(i)) } //nolint:gosec // it may be negative

// reply is struct seccomp_notif_resp.
type reply struct {
	id    uint64
	val   int64
	err   int32 // negative
	flags uint32
}

// addition is struct seccomp_notif_addfd.
type addition struct {
	id       uint64
	flags    uint32
	from     uint32 // ours
	to       uint32
	newFlags uint32 // O_CLOEXEC
}

// sizes is struct seccomp_notif_sizes, and what it has to say: a kernel with larger
// structures would answer with more than we have room for, and takes our numbers of
// ioctl for unknown ones.
type sizes struct{ notif, reply, data uint16 }

var ourSizes = sizes{uint16(unsafe.Sizeof(notif{})), uint16(unsafe.Sizeof(reply{})), 64}

// listener is the descriptor that calls come from.
type listener int

func (l listener) ioctl(request uint, arg unsafe.Pointer) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(l), uintptr(request), uintptr(arg))
	return e
}

// receive waits for a call. EINTR, and ENOENT (its process is gone), are no failures.
func (l listener) receive(n *notif) unix.Errno {
	*n = notif{}                                                     // the kernel wants zeros
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n)) //nolint:gosec // what the system call takes
}

// send answers. ENOENT: nobody waits for it any more.
func (l listener) send(r *reply) unix.Errno {
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r)) //nolint:gosec // what the system call takes
}

// add puts a descriptor of ours into the caller's table and returns its number there.
func (l listener) add(a *addition) (int, unix.Errno) {
	fd, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(l), unix.SECCOMP_IOCTL_NOTIF_ADDFD, uintptr(unsafe.Pointer(a))) //nolint:gosec // what the system call takes
	return int(fd), e
}

// valid fails where the call no longer waits: its thread is no more the one that its number
// was of when it was last looked at.
func (l listener) valid(id *uint64) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(l), unix.SECCOMP_IOCTL_NOTIF_ID_VALID, uintptr(unsafe.Pointer(id))) //nolint:gosec // what the system call takes
	return e
}

// wakeTogether has the kernel run whoever answers on the caller's processor, where it
// knows how to: both wait for each other anyway. It came with Linux 6.6.
func (l listener) wakeTogether() {
	_, _, _ = unix.RawSyscall(unix.SYS_IOCTL, uintptr(l), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
}

// ended reports whether nobody is left who could make a call.
func (l listener) ended() bool {
	fds := []unix.PollFd{{Fd: int32(l)}} //nolint:gosec // descriptors are small
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLHUP != 0
}

// await waits for a first call, so that one that never comes does not hold us for ever.
func (l listener) await(ms int) bool {
	fds := []unix.PollFd{{Fd: int32(l), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
	for {
		n, err := unix.Poll(fds, ms)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
	}
}
