package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"postern/launcher/bpf"
)

// withoutCommand makes the test binary the launcher on a system that refuses something: it
// is followed by a name of withheld and the command line of the launcher.
const withoutCommand = "__without"

// openBeneath are the flags by which the broker opens what a caller is in.
const openBeneath = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC

// noFolder is AT_FDCWD as it stands in a register.
const noFolder = 1<<32 + unix.AT_FDCWD

// withheld are parts that a kernel may lack, or that a policy (AppArmor's ioctl, a
// container's filter, Yama) keeps from the launcher; each with an answer of the kernel's.
var withheld = []struct {
	name  string
	nr    uint32
	arg   uint32
	value uint32 // of that argument; zero: the call itself
	err   unix.Errno
	says  []string
}{
	{"Landlock", unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.ENOSYS, []string{"the kernel gives no Landlock", "function not implemented", "use Linux 5.19"}},
	{"Landlock, switched off", unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.EOPNOTSUPP, []string{"the kernel gives no Landlock", "not supported"}},
	{"killable waits", unix.SYS_SECCOMP, 1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, unix.EINVAL, []string{"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV", "invalid argument", "use Linux 5.19"}},
	{"AppArmor and RECV", unix.SYS_IOCTL, 1, unix.SECCOMP_IOCTL_NOTIF_RECV, unix.EACCES, []string{"receive a system call of the sandbox", "SECCOMP_IOCTL_NOTIF_RECV", "permission denied", "AppArmor", "journalctl -k"}},
	{"a filter and RECV", unix.SYS_IOCTL, 1, unix.SECCOMP_IOCTL_NOTIF_RECV, unix.EPERM, []string{"SECCOMP_IOCTL_NOTIF_RECV", "operation not permitted", "seccomp profile"}},
	{"ID_VALID", unix.SYS_IOCTL, 1, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unix.EACCES, []string{"SECCOMP_IOCTL_NOTIF_ID_VALID", "permission denied", "AppArmor"}},
	{"ADDFD", unix.SYS_IOCTL, 1, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unix.EACCES, []string{"SECCOMP_IOCTL_NOTIF_ADDFD", "permission denied", "AppArmor"}},
	{"SEND", unix.SYS_IOCTL, 1, unix.SECCOMP_IOCTL_NOTIF_SEND, unix.EACCES, []string{"SECCOMP_IOCTL_NOTIF_SEND", "permission denied", "AppArmor"}},
	{"Yama of scope 3", unix.SYS_PROCESS_VM_READV, 0, 0, unix.EPERM, []string{"process_vm_readv", "operation not permitted", "kernel.yama.ptrace_scope", "AppArmor"}},
	{"no reading across processes", unix.SYS_PROCESS_VM_READV, 0, 0, unix.ENOSYS, []string{"process_vm_readv", "function not implemented"}},
	{"AppArmor and /proc", unix.SYS_OPENAT, 2, openBeneath, unix.EACCES, []string{"/proc", "permission denied", "AppArmor"}},
}

// without becomes the launcher that lacks what args begin with.
func without(args []string) int {
	runtime.LockOSThread() // what a thread may not do, what it executes may not either
	for _, h := range withheld {
		if h.name != args[0] {
			continue
		}
		var p bpf.Program
		p.Number()
		p.Call(h.nr, func(p *bpf.Program) {
			if h.value == 0 {
				p.Add(bpf.Errno(h.err))
				return
			}
			if h.nr == unix.SYS_OPENAT {
				p.Arg(0) // by a path of its own anybody may
				p.Is(noFolder, bpf.Return(unix.SECCOMP_RET_ALLOW))
			}
			p.Arg(h.arg)
			p.Is(h.value, bpf.Errno(h.err))
			p.Add(bpf.Return(unix.SECCOMP_RET_ALLOW))
		})
		p.Add(bpf.Return(unix.SECCOMP_RET_ALLOW))
		prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
		if os.Geteuid() != 0 { // others may filter what gains no right
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return complain(err)
			}
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
			return complain(e)
		}
		return complain(syscall.Exec("/proc/self/exe", append([]string{"postern"}, args[1:]...), os.Environ()))
	}
	return complain(fmt.Errorf("nothing is called %q", args[0]))
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "cannot become the launcher:", err)
	return 1
}

// Where the system keeps from the launcher what a guard of names needs, a run with such
// rules is refused, the part is named with its cure, and nothing is started or left (SPEC 26).
// A run without rules has no guard where that is known before it stands; where it is not, it is
// refused as well, and told how to do without.
func TestWithout(t *testing.T) {
	for _, h := range withheld {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			newAppliance(t, w.runs)
			got := w.postern(withoutCommand, h.name, "run", "--deny-name", "*.key", "--", "/bin/sh", "-c", "touch ran")
			if got.code != 125 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.HasPrefix(got.stderr, "postern: refused: ") {
				t.Errorf("got %+v", got)
			}
			for _, text := range append(h.says, "*.key", "[name_globs]") {
				if !strings.Contains(got.stderr, text) {
					t.Errorf("%q does not say %q", got.stderr, text)
				}
			}
			if left, _ := os.ReadDir(w.tree); len(left) > 0 {
				t.Errorf("%v was left", left)
			}
			if left, _ := filepath.Glob(w.runs + "/.*"); len(left) > 0 {
				t.Errorf("left in the run directory: %q", left)
			}
			plain := func(flags ...string) result {
				t.Helper()
				args := append([]string{withoutCommand, h.name, "run"}, flags...)
				return w.postern(append(args, "--", "/bin/sh", "-c", "echo ran")...)
			}
			if got := plain("--guard-names", "off"); got.code != 0 || got.stdout != "ran\n" {
				t.Errorf("without a guard: %+v", got)
			}
			got = plain()
			if h.nr == unix.SYS_LANDLOCK_CREATE_RULESET || h.nr == unix.SYS_SECCOMP { // it is known
				if got.code != 0 || got.stdout != "ran\n" {
					t.Errorf("without rules: %+v", got)
				}
			} else if got.code != 125 || got.stdout != "" || !strings.Contains(got.stderr, "or say --guard-names off [name_globs]") {
				t.Errorf("without rules: %+v", got)
			}
		})
	}
}
