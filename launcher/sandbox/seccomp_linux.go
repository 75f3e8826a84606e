package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
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

// Offsets into struct seccomp_data: int nr; __u32 arch; __u64 ip; __u64 args[6]. Both
// architectures are little-endian, so the low half of an argument comes first.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

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
	var p program
	p.load(dataArch)
	p.unless(archToken, ret(unix.SECCOMP_RET_KILL_PROCESS))
	p.load(dataNr)
	if x32 {
		// The x32 numbers are other names for the same calls. No distribution uses them.
		p.atLeast(0x40000000, errno(unix.ENOSYS))
	}
	for _, d := range deniedCalls {
		p.when(d.nr, errno(d.errno))
	}
	for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		p.call(nr, func(p *program) {
			p.load(dataArgs)
			for _, family := range families {
				p.when(family, ret(unix.SECCOMP_RET_ALLOW))
			}
			switch {
			case unixSockets:
				p.when(unix.AF_UNIX, ret(unix.SECCOMP_RET_ALLOW))
			case nr == unix.SYS_SOCKETPAIR:
				p.unless(unix.AF_UNIX, errno(unix.EAFNOSUPPORT))
				p.load(dataArgs + 8)
				p.and(0xf) // the rest is flags: SOCK_NONBLOCK, SOCK_CLOEXEC
				for _, kind := range pairTypes {
					p.when(kind, ret(unix.SECCOMP_RET_ALLOW))
				}
			}
			p.add(errno(unix.EAFNOSUPPORT))
		})
	}
	p.call(unix.SYS_IOCTL, func(p *program) {
		p.load(dataArgs + 8)
		for _, request := range ttyInjections {
			p.when(request, errno(unix.EPERM))
		}
		p.add(ret(unix.SECCOMP_RET_ALLOW))
	})
	p.add(ret(unix.SECCOMP_RET_ALLOW))
	return p
}

// program is a filter being written.
type program []unix.SockFilter

func (p *program) add(ins unix.SockFilter) { *p = append(*p, ins) }

func (p *program) load(offset uint32) {
	p.add(unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

// and keeps the bits of mask of the loaded word.
func (p *program) and(mask uint32) {
	p.add(unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}

// when runs then if the loaded word is k.
func (p *program) when(k uint32, then unix.SockFilter) {
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: k})
	p.add(then)
}

// unless runs then if the loaded word is not k.
func (p *program) unless(k uint32, then unix.SockFilter) {
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: k})
	p.add(then)
}

// atLeast runs then if the loaded word is k or more.
func (p *program) atLeast(k uint32, then unix.SockFilter) {
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: k})
	p.add(then)
}

// call runs body if the loaded word is nr. The body must end in a return, for it
// loads another word.
func (p *program) call(nr uint32, body func(*program)) {
	var b program
	body(&b)
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(len(b)), K: nr}) //nolint:gosec // a body is a dozen instructions
	*p = append(*p, b...)
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func errno(e unix.Errno) unix.SockFilter {
	return ret(unix.SECCOMP_RET_ERRNO | uint32(e)&unix.SECCOMP_RET_DATA) //nolint:gosec // error numbers are small
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
