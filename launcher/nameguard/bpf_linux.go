package nameguard

import "golang.org/x/sys/unix"

// Offsets into struct seccomp_data: int nr; __u32 arch; __u64 ip; __u64 args[6]. Both
// architectures are little-endian, so the low half of an argument comes first.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

// program is a filter being written.
type program []unix.SockFilter

func (p *program) add(ins unix.SockFilter) { *p = append(*p, ins) }

// number loads the number of the call.
func (p *program) number() { p.load(dataNr) }

// arg loads the low half of an argument: all arguments that are looked at are of 32 bits
// for the kernel too, so the upper half of the register says nothing.
func (p *program) arg(i uint32) { p.load(dataArgs + 8*i) }

func (p *program) load(offset uint32) {
	p.add(unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

// and keeps the bits of mask of the loaded word.
func (p *program) and(mask uint32) {
	p.add(unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}

// is runs then if the loaded word is k.
func (p *program) is(k uint32, then unix.SockFilter) {
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: k})
	p.add(then)
}

// isNot runs then if the loaded word is not k.
func (p *program) isNot(k uint32, then unix.SockFilter) {
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: k})
	p.add(then)
}

// above runs then if the loaded word is more than k.
func (p *program) above(k uint32, then unix.SockFilter) {
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jf: 1, K: k})
	p.add(then)
}

// any runs then if the loaded word has one of the bits of mask.
func (p *program) any(mask uint32, then unix.SockFilter) {
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: mask})
	p.add(then)
}

// call runs body if the loaded word is nr. The body must end in a return, for it loads
// another word.
func (p *program) call(nr uint32, body func(*program)) {
	var b program
	body(&b)
	p.add(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(len(b)), K: nr}) //nolint:gosec // a body is a dozen instructions
	*p = append(*p, b...)
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func refuse(e unix.Errno) unix.SockFilter {
	return ret(unix.SECCOMP_RET_ERRNO | uint32(e)&unix.SECCOMP_RET_DATA) //nolint:gosec // error numbers are small
}
