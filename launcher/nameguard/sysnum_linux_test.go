package nameguard

import (
	"bufio"
	"errors"
	"go/build"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/launcher/bpf/bpftest"
)

// numbersOf reads the numbers that x/sys has for an architecture.
func numbersOf(t *testing.T, arch string) table {
	t.Helper()
	pkg, err := build.Import("golang.org/x/sys/unix", ".", build.FindOnly)
	must(t, err)
	f, err := os.Open(filepath.Join(pkg.Dir, "zsysnum_linux_"+arch+".go"))
	must(t, err)
	defer f.Close()
	line := regexp.MustCompile(`^\s*SYS_(\w+)\s*=\s*(\d+)`)
	out := table{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if m := line.FindStringSubmatch(s.Text()); m != nil {
			n, err := strconv.ParseUint(m[2], 10, 32)
			must(t, err)
			out[strings.ToLower(m[1])] = uint32(n)
		}
	}
	if len(out) < 200 {
		t.Fatalf("x/sys has %d numbers for %s: it is not read right", len(out), arch)
	}
	return out
}

// Each number is the one that x/sys has, each call that the filter names has one where the
// architecture knows it, and nobody has added calls since the tables were written: a new
// one has to be looked at before it is let through.
func TestTables(t *testing.T) {
	named := append(append(append([]string{}, trapped...), removals...), append(forbidden, unknown...)...)
	named = append(named, "open", "openat", "ioctl", "clone", "unshare", "sched_getaffinity")
	for name := range modes {
		named = append(named, name)
	}
	for arch, ours := range tables {
		theirs := numbersOf(t, arch)
		for _, name := range named {
			nr, has := theirs[name]
			if got, ok := ours[name]; ok != has || got != nr {
				t.Errorf("%s: %s is %d (%t), and for x/sys %d (%t)", arch, name, got, ok, nr, has)
			}
		}
		if len(ours) > len(named) {
			t.Errorf("%s: the table has %d numbers, and the filter names %d calls", arch, len(ours), len(named))
		}
		highest, name := uint32(0), ""
		for n, nr := range theirs {
			if nr > highest {
				highest, name = nr, n
			}
		}
		if highest != newest {
			t.Errorf("%s: x/sys knows calls up to %d (%s), and we up to %d: look at the new ones, name in the filter those that make entries or views of files, then raise newest", arch, highest, name, newest)
		}
	}
}

func TestFilterProgram(t *testing.T) {
	const (
		allow  = uint32(unix.SECCOMP_RET_ALLOW)
		notify = uint32(unix.SECCOMP_RET_USER_NOTIF)
		junk   = 0xdead_0000_0000 // the kernel drops the upper half
	)
	refused := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	for name, arch := range archTokens {
		nr := tables[name]
		prog, removing := filterProgram(arch, nr, false), filterProgram(arch, nr, true)
		if len(prog) > 4096 {
			t.Fatalf("%d instructions", len(prog))
		}
		check := func(what string, call string, want uint32, args ...uint64) {
			t.Helper()
			n, ok := nr[call]
			if !ok {
				return
			}
			if got := bpftest.Run(t, prog, n, arch, args...); got != want {
				t.Errorf("%s: %s: %#x, want %#x", name, what, got, want)
			}
		}
		for _, call := range trapped {
			check(call, call, notify)
		}
		for _, call := range removals {
			check(call, call, allow)
			if n, ok := nr[call]; ok && bpftest.Run(t, removing, n, arch) != notify {
				t.Errorf("%s: %s is not trapped where it should be", name, call)
			}
		}
		for _, call := range forbidden {
			check(call, call, refused(unix.EPERM))
		}
		for _, call := range unknown {
			check(call, call, refused(unix.ENOSYS))
		}
		for flags, want := range map[uint64]uint32{
			unix.O_RDONLY: allow, unix.O_RDONLY | unix.O_CLOEXEC | unix.O_DIRECTORY: allow, unix.O_PATH | unix.O_RDWR: allow,
			unix.O_WRONLY: notify, unix.O_RDWR: notify, 3: notify, unix.O_CREAT: notify, unix.O_TRUNC: notify,
			unix.O_TMPFILE | unix.O_RDWR: notify, tmpfileBit: notify, junk | unix.O_WRONLY: notify, junk: allow,
		} {
			check("open", "open", want, 0, flags)
			check("openat", "openat", want, 0, 0, flags)
		}
		for request, want := range map[uint64]uint32{
			unix.TCGETS: allow, ficlone: allow, ficloneRange: allow, fideDupeRange: allow,
			0x5000940e: refused(unix.EPERM), 0x50009418: refused(unix.EPERM), 0x4020bc10: refused(unix.EPERM), junk | 0x5000940e: refused(unix.EPERM),
		} {
			check("ioctl", "ioctl", want, 0, request)
		}
		for flags, want := range map[uint64]uint32{
			unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD): allow, unix.CLONE_THREAD: allow, 0xff: allow,
			unix.CLONE_NEWUSER: refused(unix.EPERM), unix.CLONE_NEWNS | 17: refused(unix.EPERM), unix.CLONE_NEWNET | junk: refused(unix.EPERM),
		} {
			check("clone", "clone", want, flags)
		}
		check("unshare", "unshare", allow, unix.CLONE_FS)
		for pid, want := range map[uint64]uint32{0: allow, junk: allow, 1: notify, 0xffffffff: notify} {
			check("sched_getaffinity", "sched_getaffinity", want, pid)
		}
		check("unshare", "unshare", refused(unix.EPERM), unix.CLONE_NEWTIME)
		for call, arg := range modes {
			for mode, want := range map[uint64]uint32{0o644: allow, 0o755: notify, 0o100: notify, 0o010: notify, 0o001: notify} {
				args := make([]uint64, 3)
				args[arg] = mode
				check(call, call, want, args...)
			}
		}
		for _, n := range []uint32{newest + 1, 0x40000000, 0x40000002, 0xffffffff} {
			if got := bpftest.Run(t, prog, n, arch); got != refused(unix.ENOSYS) {
				t.Errorf("%s: number %#x: %#x", name, n, got)
			}
		}
		if got := bpftest.Run(t, prog, 1, arch^1); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("%s: another architecture: %#x", name, got)
		}
	}
}

func TestParseMounts(t *testing.T) {
	o := &Options{Free: []string{"/tmp", "/dev", "/proc"}, Private: []string{"/home/u"}}
	const fine = "20 1 0:20 / / ro,relatime - tmpfs tmpfs rw\n" +
		"21 20 0:21 / /proc rw - proc proc rw\n" +
		"22 20 0:22 / /tmp rw master:3 - tmpfs tmpfs rw\n" +
		"23 20 0:23 / /dev/pts rw - devpts devpts rw\n" +
		"24 20 0:24 / /home/u rw - tmpfs tmpfs rw\n" +
		"25 24 8:1 /x /home/u/a\\040b rw,nosuid shared:1 master:2 - ext4 /dev/x rw\n" +
		"26 20 8:1 /y /mnt ro - vfat /dev/y rw\n"
	m, err := parseMounts(fine, o)
	must(t, err)
	for id, want := range map[uint64]zone{20: guarded, 21: process, 22: free, 23: free, 24: private, 25: guarded, 26: guarded, 27: stranger} {
		if m.zones[id] != want {
			t.Errorf("mount %d: %d, want %d", id, m.zones[id], want)
		}
	}
	for _, at := range []string{"/", "/home", "/home/u", "/dev"} {
		if !m.above[at] {
			t.Errorf("%s leads to no mount point", at)
		}
	}
	if m.above["/tmp"] || m.above["/home/u/a b"] {
		t.Error("a mount point leads to itself")
	}
	for _, kind := range []string{"vfat", "exfat", "ntfs3", "cifs", "9p", "fuse.sshfs", "virtiofs"} {
		_, err := parseMounts(fine+"30 24 8:2 / /home/u/c rw - "+kind+" /dev/z rw\n", o)
		if _, ok := errors.AsType[*FileSystemError](err); !ok || !strings.Contains(err.Error(), kind) || !strings.Contains(err.Error(), "/home/u/c") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for _, mount := range []string{"/ /tmp/a rw - ext4 /dev/z rw", "/run/a /tmp/b/c rw - tmpfs tmpfs rw", "/v /dev/shm/x rw - btrfs /dev/z rw"} {
		if _, err := parseMounts(fine+"30 22 8:2 "+mount+"\n", o); err == nil || !strings.Contains(err.Error(), "acts by itself") {
			t.Errorf("%s: %v", mount, err)
		}
	}
	for _, mount := range []string{"/ /tmp/a ro - ext4 /dev/z rw", "/ /tmp/b rw - tmpfs tmpfs rw", "/0 /dev/console rw - devpts devpts rw", "/null /dev/null rw - devtmpfs udev rw"} {
		if _, err := parseMounts(fine+"30 22 8:2 "+mount+"\n", o); err != nil {
			t.Errorf("%s: %v", mount, err)
		}
	}
	for _, bad := range []string{"", "x", "20 1 0:20 / / ro", "x 1 0:20 / / ro - tmpfs tmpfs rw"} {
		if _, err := parseMounts(bad, o); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
