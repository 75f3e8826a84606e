package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"postern/launcher/bpf"
)

// families a run may make sockets of. AF_VSOCK reaches the hypervisor past every
// network namespace, AF_ALG, AF_PACKET, AF_BLUETOOTH and the rest are kernel surface
// that no build needs.
var families = []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// pairTypes are the pairs of Unix sockets that stay where Unix sockets are refused.
// They are connected for life. A datagram pair is not: either end can be connected
// again, to any path (SOCK_RAW is another name for the same).
var pairTypes = []uint32{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}

// ttyInjections put bytes into a terminal's input, for whoever reads it next, or another
// line discipline under it, which loads a kernel module and can leave it dead.
var ttyInjections = []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD}

// denied is a system call that a run may not make, and what it gets instead. ENOSYS
// is for those that programs know how to do without.
type denied struct {
	name  string
	nr    uint32
	errno unix.Errno
}

var deniedCalls = []denied{
	// io_uring makes sockets and opens files without any further system call, that
	// is past this filter.
	{"io_uring_setup", unix.SYS_IO_URING_SETUP, unix.ENOSYS},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER, unix.ENOSYS},
	{"io_uring_register", unix.SYS_IO_URING_REGISTER, unix.ENOSYS},
	// Keyrings are not namespaced: the user's session keyring would be at hand.
	{"keyctl", unix.SYS_KEYCTL, unix.ENOSYS},
	{"add_key", unix.SYS_ADD_KEY, unix.ENOSYS},
	{"request_key", unix.SYS_REQUEST_KEY, unix.ENOSYS},
	{"bpf", unix.SYS_BPF, unix.EPERM},
	{"userfaultfd", unix.SYS_USERFAULTFD, unix.EPERM},
	{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, unix.EPERM},
}

// filter builds the program. It allows what it does not name: an allowlist of system
// calls breaks with every new C library, and the sandbox does not stand on it alone.
//
// Arguments are compared as the kernel takes them: socket families and ioctl numbers
// are 32-bit, so the upper half of the register says nothing.
//
// Unix sockets are refused unless unixSockets asks for them. A socket file that can be
// seen can be connected to, whatever the mount says, and one may appear in a folder of
// the run at any time: whoever listens there acts outside of every sandbox. What a
// process needs to talk to its children, a connected pair, stays.
func filter(archToken uint32, x32, unixSockets bool) []unix.SockFilter {
	var p bpf.Program
	p.Arch()
	p.IsNot(archToken, bpf.Return(unix.SECCOMP_RET_KILL_PROCESS))
	p.Number()
	if x32 {
		// The x32 numbers are other names for the same calls. No distribution uses them.
		p.Above(0x40000000-1, bpf.Errno(unix.ENOSYS))
	}
	for _, d := range deniedCalls {
		p.Is(d.nr, bpf.Errno(d.errno))
	}
	for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		p.Call(nr, func(p *bpf.Program) {
			p.Arg(0)
			for _, family := range families {
				p.Is(family, bpf.Return(unix.SECCOMP_RET_ALLOW))
			}
			switch {
			case unixSockets:
				p.Is(unix.AF_UNIX, bpf.Return(unix.SECCOMP_RET_ALLOW))
			case nr == unix.SYS_SOCKETPAIR:
				p.IsNot(unix.AF_UNIX, bpf.Errno(unix.EAFNOSUPPORT))
				p.Arg(1)
				p.And(0xf) // the rest is flags: SOCK_NONBLOCK, SOCK_CLOEXEC
				for _, kind := range pairTypes {
					p.Is(kind, bpf.Return(unix.SECCOMP_RET_ALLOW))
				}
			}
			p.Add(bpf.Errno(unix.EAFNOSUPPORT))
		})
	}
	p.Call(unix.SYS_IOCTL, func(p *bpf.Program) {
		p.Arg(1)
		for _, request := range ttyInjections {
			p.Is(request, bpf.Errno(unix.EPERM))
		}
		p.Add(bpf.Return(unix.SECCOMP_RET_ALLOW))
	})
	p.Add(bpf.Return(unix.SECCOMP_RET_ALLOW))
	return p
}

// seccompProgram is the filter as bubblewrap reads it: the array of struct
// sock_filter.
func seccompProgram(unixSockets bool) (string, error) {
	if archToken == 0 {
		return "", &Refusal{Reason: ReasonUnsupportedArch, Detail: fmt.Sprintf("there is no system call filter for %s yet", runtime.GOARCH)}
	}
	var buf bytes.Buffer
	if err := binary.Write(&buf, binary.LittleEndian, filter(archToken, runtime.GOARCH == "amd64", unixSockets)); err != nil {
		return "", fmt.Errorf("write system call filter: %w", err)
	}
	return buf.String(), nil
}
