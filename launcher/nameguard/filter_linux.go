package nameguard

import (
	"golang.org/x/sys/unix"

	"postern/launcher/bpf"
)

// What the filter does with the calls it names. What it does not name it allows: Landlock
// refuses, below the guarded folders, every right that a forgotten call would need.
var (
	// trapped always go to the broker.
	trapped = []string{
		"creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat",
		"rename", "renameat", "renameat2", "truncate", "openat2", "bind", "umask", "sched_setaffinity",
	}

	// removals go to the broker where the rules are about deleting, too.
	removals = []string{"unlink", "unlinkat", "rmdir"}

	// forbidden fail with EPERM: they make other views of the same files, or names without
	// a path.
	forbidden = []string{
		"setns", "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr",
		"fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "open_by_handle_at", "userfaultfd",
	}

	// unknown fail with ENOSYS: programs know how to do without them. clone3 has its flags
	// in memory, where a filter cannot look; io_uring opens files past every filter.
	unknown = []string{"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"}

	// modes are the calls that can make a file executable, with the argument that says so.
	modes = map[string]uint32{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}

	// opens are the calls whose flags stand in a register, and which.
	opens = []struct {
		name string
		arg  uint32
	}{{"openat", 2}, {"open", 1}}
)

// writes are the bits of open's flags that ask for more than reading. Access mode 3 asks
// for neither reading nor writing, and checks both: it is one of them.
const writes = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | tmpfileBit

// tmpfileBit is O_TMPFILE without O_DIRECTORY.
const tmpfileBit = unix.O_TMPFILE &^ unix.O_DIRECTORY

// namespaces are the flags by which clone and unshare make namespaces. CLONE_NEWTIME is
// a part of the exit signal for clone.
const (
	namespaces  = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	unshareable = namespaces | unix.CLONE_NEWTIME
)

// The types of ioctl numbers by which btrfs and bcachefs make and remove named trees,
// through a descriptor that is open for reading: no other mechanism sees them. Copies of
// file content have numbers of the first type as well.
const (
	ioctlType     = 0xff00
	ioctlBtrfs    = 0x9400
	ioctlBcachefs = 0xbc00

	ficlone       = 0x40049409
	ficloneRange  = 0x4020940d
	fideDupeRange = 0xc0189436
)

// filterProgram builds the program for one architecture. The calls that programs make most come
// first.
func filterProgram(arch uint32, t table, trapRemove bool) []unix.SockFilter {
	notify, allow := bpf.Return(unix.SECCOMP_RET_USER_NOTIF), bpf.Return(unix.SECCOMP_RET_ALLOW)
	var p bpf.Program
	p.Arch()
	p.IsNot(arch, bpf.Return(unix.SECCOMP_RET_KILL_PROCESS))
	p.Number()
	// The x32 numbers lie above it as well.
	p.Above(newest, bpf.Errno(unix.ENOSYS))
	each := func(names []string, do func(nr uint32)) {
		for _, name := range names {
			if nr, ok := t[name]; ok {
				do(nr)
			}
		}
	}
	for _, o := range opens {
		each([]string{o.name}, func(nr uint32) {
			p.Call(nr, func(p *bpf.Program) {
				p.Arg(o.arg)
				// Such a descriptor gives no right to the file, and makes none.
				p.Any(unix.O_PATH, allow)
				p.Any(writes, notify)
				p.Add(allow)
			})
		})
	}
	each(trapped, func(nr uint32) { p.Is(nr, notify) })
	if trapRemove {
		each(removals, func(nr uint32) { p.Is(nr, notify) })
	}
	// Where it may run itself nobody changes while it asks; where another may is our doing, too.
	each([]string{"sched_getaffinity"}, func(nr uint32) {
		p.Call(nr, func(p *bpf.Program) {
			p.Arg(0)
			p.Is(0, allow)
			p.Add(notify)
		})
	})
	each([]string{"ioctl"}, func(nr uint32) {
		p.Call(nr, func(p *bpf.Program) {
			p.Arg(1)
			for _, k := range []uint32{ficlone, ficloneRange, fideDupeRange} {
				p.Is(k, allow)
			}
			p.And(ioctlType)
			p.Is(ioctlBtrfs, bpf.Errno(unix.EPERM))
			p.Is(ioctlBcachefs, bpf.Errno(unix.EPERM))
			p.Add(allow)
		})
	})
	for _, c := range []struct {
		name string
		mask uint32
	}{{"clone", namespaces}, {"unshare", unshareable}} {
		each([]string{c.name}, func(nr uint32) {
			p.Call(nr, func(p *bpf.Program) {
				p.Arg(0)
				p.Any(c.mask, bpf.Errno(unix.EPERM))
				p.Add(allow)
			})
		})
	}
	for _, name := range []string{"chmod", "fchmod", "fchmodat", "fchmodat2"} {
		each([]string{name}, func(nr uint32) {
			p.Call(nr, func(p *bpf.Program) {
				p.Arg(modes[name])
				p.Any(0o111, notify)
				p.Add(allow)
			})
		})
	}
	each(forbidden, func(nr uint32) { p.Is(nr, bpf.Errno(unix.EPERM)) })
	each(unknown, func(nr uint32) { p.Is(nr, bpf.Errno(unix.ENOSYS)) })
	p.Add(allow)
	return p
}
