package nameguard

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ways are the system calls by which an entry called name can come to be, or be changed.
// There is a plain file "plain", a directory "folder" and a symlink "chain", which leads to
// name.
var ways = map[string]func(name string) error{
	"creat": func(n string) error { return made(unix.Creat(n, 0o644)) },
	"open for writing": func(n string) error {
		return made(unix.Open(n, unix.O_CREAT|unix.O_WRONLY, 0o644))
	},
	"open for reading": func(n string) error { return made(unix.Open(n, unix.O_CREAT|unix.O_RDONLY, 0o644)) },
	"open exclusively": func(n string) error {
		return made(unix.Open(n, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o644))
	},
	"open by access mode 3": func(n string) error { return made(unix.Open(n, unix.O_CREAT|3, 0o644)) },
	"openat": func(n string) error {
		return inFolder(func(fd int) error { return made(unix.Openat(fd, "../"+n, unix.O_CREAT|unix.O_RDWR, 0o644)) })
	},
	"openat2": func(n string) error {
		return made(unix.Openat2(unix.AT_FDCWD, n, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o644}))
	},
	"openat2 beneath": func(n string) error {
		return made(unix.Openat2(unix.AT_FDCWD, n, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o644, Resolve: unix.RESOLVE_BENEATH}))
	},
	"openat2 in root": func(n string) error {
		return inFolder(func(int) error {
			fd, err := unix.Open(inside, unix.O_PATH, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return made(unix.Openat2(fd, "/../"+n, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o644, Resolve: unix.RESOLVE_IN_ROOT}))
		})
	},
	"symlink to it":  func(n string) error { return made(unix.Open("chain", unix.O_CREAT|unix.O_WRONLY, 0o644)) },
	"through cwd":    func(n string) error { return made(unix.Open("/proc/self/cwd/"+n, unix.O_CREAT|unix.O_WRONLY, 0o644)) },
	"through root":   func(n string) error { return made(unix.Creat("/proc/thread-self/root/w/"+n, 0o644)) },
	"through a pid":  func(n string) error { return made(unix.Creat(fmt.Sprintf("/proc/%d/cwd/%s", os.Getpid(), n), 0o644)) },
	"through parent": func(n string) error { return made(unix.Creat(fmt.Sprintf("/proc/%d/cwd/%s", os.Getppid(), n), 0o644)) },
	"through fd": func(n string) error {
		return inFolder(func(fd int) error { return made(unix.Creat(fmt.Sprintf("/dev/fd/%d/../%s", fd, n), 0o644)) })
	},
	"dots":              func(n string) error { return made(unix.Creat("folder/.././/../w/./"+n, 0o644)) },
	"mkdir":             func(n string) error { return unix.Mkdir(n, 0o755) },
	"mkdir with slash":  func(n string) error { return unix.Mkdir(n+"/", 0o755) },
	"mknod":             func(n string) error { return unix.Mknod(n, unix.S_IFREG|0o644, 0) },
	"mkfifo":            func(n string) error { return unix.Mkfifo(n, 0o644) },
	"mknod of a socket": func(n string) error { return unix.Mknod(n, unix.S_IFSOCK|0o644, 0) },
	"symlink":           func(n string) error { return unix.Symlink("plain", n) },
	"link":              func(n string) error { return unix.Link("plain", n) },
	"linkat of a descriptor": func(n string) error {
		fd, err := unix.Open("plain", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, n, unix.AT_SYMLINK_FOLLOW)
	},
	"linkat of an empty path": func(n string) error {
		fd, err := unix.Open("plain", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Linkat(fd, "", unix.AT_FDCWD, n, unix.AT_EMPTY_PATH)
	},
	"linkat of a file without name": func(n string) error {
		fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR, 0o644)
		if err != nil {
			return fmt.Errorf("make a file without name: %w", err)
		}
		defer unix.Close(fd)
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, n, unix.AT_SYMLINK_FOLLOW)
	},
	"rename":             func(n string) error { return unix.Rename("plain", n) },
	"rename of a folder": func(n string) error { return unix.Rename("folder", n) },
	"renameat2": func(n string) error {
		return unix.Renameat2(unix.AT_FDCWD, "plain", unix.AT_FDCWD, n, unix.RENAME_NOREPLACE)
	},
	"bind": func(n string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Bind(fd, &unix.SockaddrUnix{Name: n})
	},
}

func made(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func inFolder(do func(fd int) error) error {
	fd, err := unix.Open("folder", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

func init() {
	enemies["ways"] = func(args []string) error {
		for name, way := range ways {
			for _, dir := range []string{"folder"} {
				_ = os.Mkdir(dir, 0o755)
			}
			_ = os.WriteFile("plain", nil, 0o644)
			_ = os.Remove("chain")
			_ = os.Symlink(args[0], "chain")
			err := way(args[0])
			_, gone := os.Lstat(args[0])
			fmt.Printf("%s: %s, %t\n", name, errName(err), gone == nil)
			_ = os.RemoveAll(args[0])
		}
		return nil
	}
	enemies["doors"] = doors
}

func errName(err error) string {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(e)
	}
	if err != nil {
		return err.Error()
	}
	return "done"
}

// results reads what an enemy printed of the ways.
func results(t *testing.T, o outcome) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(o.out) {
		if name, what, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			out[name] = what
		}
	}
	if len(out) != len(ways) {
		t.Fatalf("%d of %d: %s (%v)", len(out), len(ways), o.out, o.err)
	}
	return out
}

// Each way works for a name that no rule is about, as it does without a guard, and is
// refused with EACCES for one that a rule is about.
func TestWays(t *testing.T) {
	plain := newBox(t)
	plain.plain = true
	bare := results(t, plain.do("ways", "id.pem"))
	b := newBox(t)
	fine, refused := results(t, b.do("ways", "id.pub")), results(t, b.do("ways", "id.pem"))
	var names []string
	for name := range ways {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		want := bare[name]
		switch name {
		case "through a pid", "through parent":
			// It is the kernel that goes there, and Landlock that refuses.
			if name == "through parent" {
				want = "EACCES, false"
			}
		}
		if fine[name] != want {
			t.Errorf("%s: %s for a name without rule, and %s without a guard", name, fine[name], want)
		}
		if refused[name] != "EACCES, false" && !strings.HasPrefix(bare[name], "E") {
			t.Errorf("%s: %s for a name with a rule", name, refused[name])
		}
		if strings.HasSuffix(refused[name], "true") {
			t.Errorf("%s: it was made", name)
		}
	}
}

// doors tries the ways past a filter.
func doors([]string) error {
	call := func(name string, nr uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		_, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		fmt.Printf("%s: %s\n", name, unix.ErrnoName(e))
	}
	path := append([]byte("x.key"), 0)
	p := uintptr(unsafe.Pointer(&path[0]))
	call("io_uring_setup", unix.SYS_IO_URING_SETUP, 8, p)
	call("clone3", unix.SYS_CLONE3, p, 8)
	call("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	call("open_tree", unix.SYS_OPEN_TREE, ^uintptr(99), p, unix.OPEN_TREE_CLONE)
	call("fsopen", unix.SYS_FSOPEN, p, 0)
	call("chroot", unix.SYS_CHROOT, p)
	call("setns", unix.SYS_SETNS, 0, 0)
	call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(99), p, unix.O_RDWR)
	call("userfaultfd", unix.SYS_USERFAULTFD, 0)
	call("a number nobody knows", newest+1)
	if runtime.GOARCH == "amd64" {
		call("x32", 0x40000000+85, p, 0o644)
	}
	call("ptrace of the first process", unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0)
	call("another listener", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}})))
	_, err := os.Lstat("x.key")
	fmt.Println("made:", err == nil)
	return nil
}

func TestDoors(t *testing.T) {
	b := newBox(t)
	o := b.do("doors")
	want := []string{
		"io_uring_setup: ENOSYS", "clone3: ENOSYS", "unshare: EPERM", "open_tree: EPERM", "fsopen: EPERM", "chroot: EPERM", "setns: EPERM",
		"open_by_handle_at: EPERM", "userfaultfd: EPERM", "a number nobody knows: ENOSYS", "ptrace of the first process: EPERM",
		"another listener: EBUSY", "made: false",
	}
	for _, line := range want {
		if !strings.Contains(o.out, line+"\n") {
			t.Errorf("not %q in\n%s", line, o.out)
		}
	}
	if runtime.GOARCH == "amd64" && !strings.Contains(o.out, "x32: ENOSYS\n") {
		t.Errorf("x32: %s", o.out)
	}
}
