package nameattacks

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"postern/launcher/nameguard"
)

const nobody = "it needs a right over the mounts that a sandbox does not have"

// makeEnv makes a forbidden file.
func makeEnv() error { return spill(unix.Creat(".env", 0o644)) }

// mountAt mounts the workspace, or a tree of one's own, over what is there.
func mountAt(source, target, kind string, flags uintptr) func() error {
	return func() error { return unix.Mount(source, target, kind, flags, "") }
}

// Side doors of the kernel.
var doors = []attack{
	{group: "doors", name: "user namespace", native: "bubblewrap lets nobody make user namespaces", run: func() error {
		runtime.LockOSThread()
		return first(func() error { return unix.Unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNS) }, makeEnv)
	}},
	{group: "doors", name: "clone into a user namespace", native: "bubblewrap lets nobody make user namespaces", run: func() error {
		pid, err := raw(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))
		if err != nil {
			return err
		}
		if pid == 0 {
			p := ".env\x00"
			_, _, _ = unix.RawSyscall(unix.SYS_MKDIRAT, ptrHere, uintptr(unsafe.Pointer(unsafe.StringData(p))), 0o755)
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return nil
	}},
	{group: "doors", name: "clone3 into a user namespace", native: "bubblewrap lets nobody make user namespaces", run: func() error {
		args := [11]uint64{unix.CLONE_NEWUSER, 0, 0, 0, uint64(unix.SIGCHLD)}
		pid, err := raw(unix.SYS_CLONE3, ptr(&args), unsafe.Sizeof(args))
		if err != nil {
			return err
		}
		if pid == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return fmt.Errorf("%sa namespace was made", brokenMark)
	}},
	{group: "doors", name: "own namespaces again", native: nobody, run: func() error {
		runtime.LockOSThread()
		var errs []error
		for _, kind := range []string{"user", "mnt", "pid", "net"} {
			for _, of := range []string{"self", "1"} {
				errs = append(errs, with("/proc/"+of+"/ns/"+kind, func(fd int) error { return first(func() error { return unix.Setns(fd, 0) }, makeEnv) }))
			}
		}
		return errors.Join(errs...)
	}},
	{group: "doors", name: "mounts", native: nobody, run: func() error {
		return errors.Join(
			first(mountAt(inside, "/tmp", "", unix.MS_BIND), makeEnv),
			first(mountAt("none", inside+"/folder", "tmpfs", 0), makeEnv),
			first(mountAt("", "/", "", unix.MS_REC|unix.MS_PRIVATE), makeEnv),
			first(func() error { return unix.Unmount("/tmp", unix.MNT_DETACH) }, makeEnv))
	}},
	{group: "doors", name: "new mounts", native: nobody, run: func() error {
		tree, e1 := unix.OpenTree(here, inside, unix.OPEN_TREE_CLONE)
		if e1 == nil {
			e1 = first(func() error { return unix.MoveMount(tree, "", here, "/tmp", unix.MOVE_MOUNT_F_EMPTY_PATH) }, func() error { return spill(unix.Creat("/tmp/.env", 0o644)) })
		}
		fs, e2 := unix.Fsopen("tmpfs", 0)
		if e2 == nil {
			e2 = fmt.Errorf("%sa file system was opened: %d", brokenMark, fs)
		}
		return errors.Join(e1, e2, unix.MountSetattr(here, inside, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NODEV}))
	}},
	{group: "doors", name: "roots", native: nobody, run: func() error {
		return errors.Join(first(func() error { return unix.Chroot(inside) }, makeEnv), first(func() error { return unix.PivotRoot(inside, inside+"/folder") }, makeEnv))
	}},
	{group: "doors", name: "administrator's files", native: "only an administrator may", run: func() error {
		_, e1 := raw(unix.SYS_ACCT, ptr(text(inside+"/.env")))
		_, e2 := raw(unix.SYS_SWAPON, ptr(text(inside+"/plain")), 0)
		_, e3 := raw(unix.SYS_QUOTACTL, 0x800002, ptr(text("/dev/vda")), 0, ptr(text(inside+"/x.key")))
		return errors.Join(e1, e2, e3)
	}},
	{group: "doors", name: "memory that somebody else gives", either: "the faults of the kernel itself are given to nobody without rights", run: faultyPath},
	{group: "doors", name: "one more filter", run: func() error {
		runtime.LockOSThread()
		return first(func() error { _, err := filter(0, unix.SECCOMP_RET_ALLOW); return err }, makeEnv)
	}},
	{group: "doors", name: "another listener", run: listen},
	{group: "doors", name: "core dump", alone: true, quiet: true, skip: func() string {
		pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
		if err != nil || strings.ContainsAny(string(pattern), "|/") || !strings.HasPrefix(string(pattern), "core") {
			return fmt.Sprintf("cores go to %q here", pattern)
		}
		return ""
	}, prepare: func(_ *testing.T, b *bed) {
		for _, name := range []string{"**/core", "**/core.*"} {
			b.rules.Globs = append(b.rules.Globs, nameguard.Rule{Text: name, Source: "test"})
		}
		b.forbid = func(rel string) bool { return rel == "core" || strings.HasPrefix(rel, "core.") }
	}, run: func() error { return sh("ulimit -c unlimited; sh -c 'kill -ABRT $$'; true") }},
}

// filter installs a filter for creat on this thread, which returns a descriptor of what it
// tells, if it is to.
func filter(flags uintptr, action uint32) (int, error) {
	const ld, jeq, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	prog := []unix.SockFilter{{Code: ld}, {Code: jeq, Jf: 1, K: unix.SYS_OPENAT}, {Code: end, K: action}, {Code: end, K: unix.SECCOMP_RET_ALLOW}}
	fprog := &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	fd, err := raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, ptr(fprog))
	return int(fd), err
}

// listen answers its own notifications with "go on".
func listen() error {
	const recv, send, size = 0xc0502100, 0xc0182101, 80
	// Its thread is there before the filter, and so not under it.
	listener := make(chan uintptr)
	go func() {
		runtime.LockOSThread()
		for fd := <-listener; ; {
			var note [size]byte
			if _, err := raw(unix.SYS_IOCTL, fd, recv, ptr(&note)); err != nil {
				continue
			}
			var reply [24]byte
			copy(reply[:8], note[:8])
			reply[20] = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
			_, _ = raw(unix.SYS_IOCTL, fd, send, ptr(&reply))
		}
	}()
	time.Sleep(10 * time.Millisecond)
	runtime.LockOSThread()
	fd, err := filter(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, unix.SECCOMP_RET_USER_NOTIF)
	if err != nil {
		return errors.Join(err, spill(unix.Open(".env", unix.O_CREAT|unix.O_WRONLY, 0o644)))
	}
	listener <- uintptr(fd)
	p := text(".env")
	_, err = raw(unix.SYS_OPENAT, ptrHere, ptr(p), unix.O_CREAT|unix.O_WRONLY, 0o644)
	return err
}

// faultyPath gives a path in memory that is there when this program says so.
func faultyPath() error {
	const userMode, api, register, fill = 1, 0xc018aa3f, 0xc020aa00, 0xc028aa03
	fd, err := raw(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userMode)
	if err != nil {
		return err
	}
	mem := pages(1)
	at, size := uint64(ptr(&mem[0])), uint64(unix.Getpagesize())
	if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
		return err
	}
	hello, area := [3]uint64{0xaa}, [4]uint64{at, size, 1}
	if _, err := raw(unix.SYS_IOCTL, fd, api, ptr(&hello)); err != nil {
		return err
	}
	if _, err := raw(unix.SYS_IOCTL, fd, register, ptr(&area)); err != nil {
		return err
	}
	go func() {
		time.Sleep(300 * time.Millisecond)
		src := pages(1)
		copy(src, ".env")
		move := [5]uint64{at, uint64(ptr(&src[0])), size}
		_, _ = raw(unix.SYS_IOCTL, fd, fill, ptr(&move))
	}()
	_, err = raw(unix.SYS_OPENAT, ptrHere, uintptr(at), unix.O_CREAT|unix.O_WRONLY, 0o644)
	return err
}
