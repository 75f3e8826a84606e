package bpftest

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// Run interprets a filter as the kernel does, for the instructions that package bpf
// writes, and returns what it says of a call.
func Run(t *testing.T, prog []unix.SockFilter, nr, arch uint32, args ...uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.LittleEndian.PutUint32(data[0:], nr)
	binary.LittleEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	var a uint32
	for pc := 0; pc < len(prog); pc++ {
		ins := prog[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(ins.Jt)
			} else {
				pc += int(ins.Jf)
			}
		}
		switch ins.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.LittleEndian.Uint32(data[ins.K:])
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == ins.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(a > ins.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&ins.K != 0)
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= ins.K
		case unix.BPF_RET | unix.BPF_K:
			return ins.K
		default:
			t.Fatalf("instruction %d: code %#x", pc, ins.Code)
		}
	}
	t.Fatal("the filter runs off its end")
	return 0
}
