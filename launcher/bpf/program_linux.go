package bpf

import "golang.org/x/sys/unix"

// Offsets into struct seccomp_data: int nr; __u32 arch; __u64 ip; __u64 args[6]. Both
// architectures are little-endian, so the low half of an argument comes first.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

// Program is a filter being written. Each check is of the word that was loaded last.
type Program []unix.SockFilter

// Add writes one instruction.
func (p *Program) Add(ins unix.SockFilter) { *p = append(*p, ins) }

// Arch loads the architecture (AUDIT_ARCH_…), which is to be checked before the number.
func (p *Program) Arch() { p.load(dataArch) }

// Number loads the number of the call.
func (p *Program) Number() { p.load(dataNr) }

// Arg loads the low half of an argument: all arguments that are looked at are of 32 bits
// for the kernel too, so the upper half of the register says nothing.
func (p *Program) Arg(i uint32) { p.load(dataArgs + 8*i) }

func (p *Program) load(offset uint32) {
	p.Add(unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

// And keeps the bits of mask of the loaded word.
func (p *Program) And(mask uint32) {
	p.Add(unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}

// Is runs then if the loaded word is k.
func (p *Program) Is(k uint32, then unix.SockFilter) {
	p.Add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: k})
	p.Add(then)
}

// IsNot runs then if the loaded word is not k.
func (p *Program) IsNot(k uint32, then unix.SockFilter) {
	p.Add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: k})
	p.Add(then)
}

// Above runs then if the loaded word is more than k.
func (p *Program) Above(k uint32, then unix.SockFilter) {
	p.Add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jf: 1, K: k})
	p.Add(then)
}

// Any runs then if the loaded word has one of the bits of mask.
func (p *Program) Any(mask uint32, then unix.SockFilter) {
	p.Add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: mask})
	p.Add(then)
}

// Call runs body if the loaded word is nr. The body must end in a return, for it loads
// another word.
func (p *Program) Call(nr uint32, body func(*Program)) {
	var b Program
	body(&b)
	p.Add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(len(b)), K: nr}) //nolint:gosec // a body is a dozen instructions
	*p = append(*p, b...)
}

// Return ends the filter with an action (seccomp(2)).
func Return(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

// Errno ends it with an error for the caller.
func Errno(e unix.Errno) unix.SockFilter {
	return Return(unix.SECCOMP_RET_ERRNO | uint32(e)&unix.SECCOMP_RET_DATA) //nolint:gosec // error numbers are small
}
