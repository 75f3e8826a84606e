package nameguard

import "runtime"

// table gives the numbers of the system calls that the filter names, for one
// architecture. A call that an architecture does not have is not in it.
type table map[string]uint32

// newest is the highest number that was looked at when the tables were written. What is
// above it the kernel may know and we do not: it fails as if the kernel did not either.
// From 424 on the numbers are the same for every architecture.
const newest = 471

// Tables by GOARCH. Numbers and not the constants of x/sys, so that each is tested on
// every machine.
var tables = map[string]table{
	"amd64": {
		"open": 2, "ioctl": 16, "bind": 49, "clone": 56, "truncate": 76, "rename": 82, "mkdir": 83, "rmdir": 84,
		"creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91, "umask": 95, "mknod": 133,
		"pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "openat": 257, "mkdirat": 258,
		"mknodat": 259, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "fchmodat": 268,
		"unshare": 272, "open_by_handle_at": 304, "setns": 308, "renameat2": 316, "sched_setaffinity": 203, "sched_getaffinity": 204, "userfaultfd": 323,
		"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
		"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "openat2": 437,
		"mount_setattr": 442, "fchmodat2": 452, "open_tree_attr": 467,
	},
	"arm64": {
		"ioctl": 29, "mknodat": 33, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38,
		"umount2": 39, "mount": 40, "pivot_root": 41, "truncate": 45, "chroot": 51, "fchmod": 52, "fchmodat": 53,
		"openat": 56, "unshare": 97, "umask": 166, "bind": 200, "clone": 220, "open_by_handle_at": 265,
		"setns": 268, "renameat2": 276, "sched_setaffinity": 122, "sched_getaffinity": 123, "userfaultfd": 282,
		"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
		"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "openat2": 437,
		"mount_setattr": 442, "fchmodat2": 452, "open_tree_attr": 467,
	},
}

// native is the running architecture's; nil where there is none.
var native = tables[runtime.GOARCH]
