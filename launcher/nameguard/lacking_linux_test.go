package nameguard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"postern/launcher/bpf"
)

// lacking are filters that make a kernel that has everything look like one that has not.
var lacking = map[string]func(p *bpf.Program){
	"Landlock": func(p *bpf.Program) {
		p.Number()
		p.Is(unix.SYS_LANDLOCK_CREATE_RULESET, bpf.Errno(unix.ENOSYS))
	},
	"Landlock, switched off": func(p *bpf.Program) {
		p.Number()
		p.Is(unix.SYS_LANDLOCK_CREATE_RULESET, bpf.Errno(unix.EOPNOTSUPP))
	},
	"Landlock that does anything": func(p *bpf.Program) {
		p.Number()
		p.Is(unix.SYS_LANDLOCK_RESTRICT_SELF, bpf.Return(unix.SECCOMP_RET_ERRNO))
	},
	"killable waits": func(p *bpf.Program) {
		p.Number()
		p.Call(unix.SYS_SECCOMP, func(p *bpf.Program) {
			p.Arg(1)
			p.Any(unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, bpf.Errno(unix.EINVAL))
			p.Add(bpf.Return(unix.SECCOMP_RET_ALLOW))
		})
	},
	"notifications": func(p *bpf.Program) {
		p.Number()
		p.Call(unix.SYS_SECCOMP, func(p *bpf.Program) {
			p.Arg(0)
			p.Is(unix.SECCOMP_GET_NOTIF_SIZES, bpf.Errno(unix.EINVAL))
			p.Add(bpf.Return(unix.SECCOMP_RET_ALLOW))
		})
	},
	"listeners": func(p *bpf.Program) { // another one is on already
		p.Number()
		p.Call(unix.SYS_SECCOMP, func(p *bpf.Program) {
			p.Arg(0)
			p.Is(unix.SECCOMP_SET_MODE_FILTER, bpf.Errno(unix.EBUSY))
			p.Add(bpf.Return(unix.SECCOMP_RET_ALLOW))
		})
	},
}

// takeAway makes the kernel lack something from now on.
func takeAway(what string) error {
	if what == "" {
		return nil
	}
	var p bpf.Program
	lacking[what](&p)
	p.Add(bpf.Return(unix.SECCOMP_RET_ALLOW))
	fprog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		return e
	}
	return nil
}

// Where the kernel lacks a part nothing is started, and the part is named.
func TestLacking(t *testing.T) {
	for what, says := range map[string]string{
		"Landlock":                    "the kernel gives no Landlock of version 2 (it has 0): function not implemented",
		"Landlock, switched off":      "the kernel gives no Landlock of version 2 (it has 0): operation not supported",
		"Landlock that does anything": "Landlock is not in force",
		"killable waits":              "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
		"notifications":               "the kernel gives no notifications of seccomp: invalid argument",
		"listeners":                   "the kernel gives no ",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.lacks = what
			o := b.sh("echo started > started")
			if o.code != shimFailed || !strings.Contains(o.out, says) {
				t.Errorf("it ended with %d and says %q, want %q", o.code, o.out, says)
			}
			if b.has("started") {
				t.Error("it was started")
			}
			if entries, _ := os.ReadDir(b.dir); len(entries) > 0 {
				t.Errorf("%v was left", entries)
			}
		})
	}
}

// A broker that the inside does not agree with, or whose options contradict each other,
// lets nothing start.
func TestBrokerRefuses(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.options = func(o *Options) { o.Canary.Name = "another" }
	if o := b.sh("echo started"); o.err == nil || strings.Contains(o.out, "started") || o.code != shimFailed {
		t.Errorf("%v: %s", o.err, o.out)
	}
	b = newBox(t)
	b.options = func(o *Options) { o.Free = append(o.Free, "/") }
	if o := b.sh("echo started"); o.err == nil || strings.Contains(o.out, "started") || o.code != shimFailed {
		t.Errorf("%v: %s", o.err, o.out)
	}
}

// A writable folder on another file system than those that are known, here a mount of
// fuse or vfat at hand, is refused by name.
func TestFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount one")
	}
	dir := t.TempDir()
	if err := unix.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
		t.Skipf("no file system that is not known can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	b := newBox(t)
	b.args = []string{"--bind", dir, inside}
	o := b.sh("echo started > started")
	fs, ok := errors.AsType[*FileSystemError](o.err)
	if !ok || fs.Type != "ramfs" || fs.Path != inside {
		t.Errorf("%v: %s", o.err, o.out)
	}
	if _, err := os.Lstat(filepath.Join(dir, "started")); err == nil {
		t.Error("it was started")
	}
}
