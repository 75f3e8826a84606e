package nameattacks

import (
	"encoding/binary"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// withoutRings says why the kernel has no io_uring for a bare sandbox.
func withoutRings() string {
	off, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
	if err != nil || strings.TrimSpace(string(off)) != "0" {
		return "io_uring is off here"
	}
	return ""
}

// Calls by io_uring, which no filter sees.
var rings = []attack{
	ringed("open", func(e *ringEntry) {
		e.op, e.addr, e.length, e.flags = 18, fixed(".env"), 0o644, unix.O_CREAT|unix.O_WRONLY
	}),
	ringed("openat2", func(e *ringEntry) {
		how := (*unix.OpenHow)(pointer(fixed("")))
		how.Flags, how.Mode = unix.O_CREAT|unix.O_WRONLY, 0o644
		e.op, e.addr, e.off, e.length = 28, fixed("x.key"), ptr(how), unix.SizeofOpenHow
	}),
	ringed("rename", func(e *ringEntry) {
		e.op, e.addr, e.off, e.length = 35, fixed("plain"), fixed(".env"), 0xffffff9c
	}),
	ringed("mkdir", func(e *ringEntry) { e.op, e.addr, e.length = 37, fixed("x.pem"), 0o755 }),
	ringed("symlink", func(e *ringEntry) { e.op, e.addr, e.off = 38, fixed("plain"), fixed(".env") }),
	ringed("link", func(e *ringEntry) {
		e.op, e.addr, e.off, e.length = 39, fixed("plain"), fixed(".env"), 0xffffff9c
	}),
}

// ringEntry is one entry of a submission queue.
type ringEntry struct {
	op            byte
	off, addr     uintptr
	length, flags uint32
}

func ringed(name string, fill func(e *ringEntry)) attack {
	return attack{group: "rings", name: "io_uring " + name, quiet: true, skip: withoutRings, run: func() error {
		var e ringEntry
		fill(&e)
		return e.submit()
	}}
}

// submit makes a ring, and has it do the one entry.
func (e *ringEntry) submit() error {
	var params [120]byte
	ring, err := raw(unix.SYS_IO_URING_SETUP, 4, ptr(&params))
	if err != nil {
		return err
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(params[at:]) }
	entries, tail, array := word(0), word(44), word(64)
	results := word(100)
	queue, err := unix.Mmap(int(ring), 0, int(max(array+entries*4, results+word(4)*16)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	sqes, err := unix.Mmap(int(ring), 0x10000000, int(entries*64), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	sqes[0] = e.op
	at := int32(here)
	binary.NativeEndian.PutUint32(sqes[4:], uint32(at))
	binary.NativeEndian.PutUint64(sqes[8:], uint64(e.off))
	binary.NativeEndian.PutUint64(sqes[16:], uint64(e.addr))
	binary.NativeEndian.PutUint32(sqes[24:], e.length)
	binary.NativeEndian.PutUint32(sqes[28:], e.flags)
	binary.NativeEndian.PutUint32(queue[array:], 0)
	binary.NativeEndian.PutUint32(queue[tail:], 1)
	if _, err := raw(unix.SYS_IO_URING_ENTER, ring, 1, 1, 1); err != nil {
		return err
	}
	if res := int32(binary.NativeEndian.Uint32(queue[results+8:])); res < 0 {
		return unix.Errno(-res)
	}
	return nil
}
