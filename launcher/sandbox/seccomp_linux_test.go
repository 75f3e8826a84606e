package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"

	"postern/launcher/bpf/bpftest"
)

// call is what the kernel shows a filter: struct seccomp_data.
type call struct {
	nr   uint32
	arch uint32
	args [6]uint64
}

// run is what a filter says of a call.
func run(t *testing.T, prog []unix.SockFilter, c call) uint32 {
	t.Helper()
	return bpftest.Run(t, prog, c.nr, c.arch, c.args[:]...)
}

func TestFilter(t *testing.T) {
	const arch = uint32(unix.AUDIT_ARCH_X86_64)
	refused := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	const allow = uint32(unix.SECCOMP_RET_ALLOW)
	prog := filter(arch, true, false)
	type tcase struct {
		name string
		c    call
		want uint32
	}
	cases := []tcase{
		{"read", call{nr: unix.SYS_READ}, allow},
		{"execve", call{nr: unix.SYS_EXECVE}, allow},
		{"ptrace stays, for debuggers", call{nr: unix.SYS_PTRACE}, allow},
		{"the highest number", call{nr: 0x3fffffff}, allow},
		{"x32", call{nr: 0x40000000 | unix.SYS_READ}, refused(unix.ENOSYS)},
		{"x32, high", call{nr: 0xffffffff}, refused(unix.ENOSYS)},
		{"32-bit entry", call{nr: unix.SYS_READ, arch: unix.AUDIT_ARCH_I386}, unix.SECCOMP_RET_KILL_PROCESS},
		{"another architecture", call{nr: unix.SYS_READ, arch: unix.AUDIT_ARCH_AARCH64}, unix.SECCOMP_RET_KILL_PROCESS},
		{"TIOCSTI", call{nr: unix.SYS_IOCTL, args: [6]uint64{0, unix.TIOCSTI}}, refused(unix.EPERM)},
		{"TIOCSTI with upper bits, which the kernel drops", call{nr: unix.SYS_IOCTL, args: [6]uint64{0, 0xdead00000000 | unix.TIOCSTI}}, refused(unix.EPERM)},
		{"TIOCLINUX", call{nr: unix.SYS_IOCTL, args: [6]uint64{0, unix.TIOCLINUX}}, refused(unix.EPERM)},
		{"TIOCSETD", call{nr: unix.SYS_IOCTL, args: [6]uint64{0, unix.TIOCSETD}}, refused(unix.EPERM)},
		{"TCGETS", call{nr: unix.SYS_IOCTL, args: [6]uint64{0, unix.TCGETS}}, allow},
		{"ioctl on descriptor TIOCSTI", call{nr: unix.SYS_IOCTL, args: [6]uint64{unix.TIOCSTI, unix.TCGETS}}, allow},
	}
	for _, d := range deniedCalls {
		cases = append(cases, tcase{d.name, call{nr: d.nr}, refused(d.errno)})
	}
	for family := range uint64(64) {
		want := refused(unix.EAFNOSUPPORT)
		switch family {
		case unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
			want = allow
		}
		for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
			cases = append(cases,
				tcase{"family", call{nr: nr, args: [6]uint64{family}}, want},
				tcase{"family with upper bits", call{nr: nr, args: [6]uint64{family | 1<<40}}, want})
		}
	}
	for _, tc := range cases {
		if tc.c.arch == 0 {
			tc.c.arch = arch
		}
		if got := run(t, prog, tc.c); got != tc.want {
			t.Errorf("%s (nr %d, args %x): %#x, want %#x", tc.name, tc.c.nr, tc.c.args, got, tc.want)
		}
	}
}

// Only pairs that stay connected for life are left of Unix sockets, whatever flags
// come with the type; with the switch all of them are.
func TestFilterOfUnixSockets(t *testing.T) {
	const arch = uint32(unix.AUDIT_ARCH_X86_64)
	const refused = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	const allow = uint32(unix.SECCOMP_RET_ALLOW)
	without, with := filter(arch, true, false), filter(arch, true, true)
	for kind := range uint64(16) {
		for _, flags := range []uint64{0, unix.SOCK_CLOEXEC, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 1 << 40} {
			for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
				c := call{nr: nr, arch: arch, args: [6]uint64{unix.AF_UNIX, kind | flags}}
				want := refused
				if nr == unix.SYS_SOCKETPAIR && (kind == unix.SOCK_STREAM || kind == unix.SOCK_SEQPACKET) {
					want = allow
				}
				if got := run(t, without, c); got != want {
					t.Errorf("call %d, type %#x: %#x, want %#x", nr, kind|flags, got, want)
				}
				if got := run(t, with, c); got != allow {
					t.Errorf("call %d, type %#x, with the switch: %#x", nr, kind|flags, got)
				}
			}
		}
	}
}

func TestFilterWithoutX32(t *testing.T) {
	prog := filter(unix.AUDIT_ARCH_AARCH64, false, false)
	if got := run(t, prog, call{nr: 0x40000001, arch: unix.AUDIT_ARCH_AARCH64}); got != unix.SECCOMP_RET_ALLOW {
		t.Errorf("got %#x", got)
	}
}

func TestSeccompProgram(t *testing.T) {
	text, err := seccompProgram(false)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(text); n == 0 || n%8 != 0 || n/8 > 4096 {
		t.Errorf("%d bytes are no array of struct sock_filter", n)
	}
}
