package nameguard

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// together keeps a caller on its processor while a file is handed to it.
//
// A worker is woken where the caller waits, and so is the caller by an answer (see
// wakeTogether). By a file it is not: the kernel prefers a processor that is idle, and the
// two chase each other over the machine, each time through the end of somebody's sleep. That
// costs more than all that we do. So for that moment both may run on this processor alone.
//
// The caller runs nothing of its own meanwhile, and gets back the right to every processor,
// which is what it had: as soon as anybody in the sandbox asks for less, or where another one
// may run, or somebody outside has asked for less, we leave all of them alone for good.
type together struct {
	on     atomic.Bool
	widest processors // where callers may run
}

// processors are a set of them, as many as a kernel may have.
type processors [128]uint64

var everyProcessor = func() (all processors) {
	for i := range all {
		all[i] = ^uint64(0)
	}
	return all
}()

// begin looks whether the sandbox, of which pid is a process, may run wherever we may. Else
// somebody has said where it may run, and would have to be asked.
func (t *together) begin(pid int) {
	var before, theirs processors
	if before.read(0) != 0 {
		return
	}
	defer before.apply(0)
	if everyProcessor.apply(0) != 0 || t.widest.read(0) != 0 || theirs.read(pid) != 0 {
		return
	}
	t.on.Store(theirs == t.widest && t.widest.count() > 1)
}

// spread lets callers run where they may, from now on, and returns when they can: each time,
// for whoever said it first may still wait for that.
func (b *Broker) spread(self *worker) {
	b.together.on.Store(false)
	b.await(self, func(w *worker) *atomic.Bool { return &w.holding })
}

// hold keeps the caller here, and reports whether it does. Then release has to follow, and
// an answer, in this order: what the caller runs next it may run anywhere.
func (w *worker) hold() bool {
	if !w.b.together.on.Load() {
		return false
	}
	w.holding.Store(true)
	if !w.b.together.on.Load() { // see spread
		w.holding.Store(false)
		return false
	}
	var cpu uint32
	_, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0) //nolint:gosec // what the system call takes
	if e == 0 && int(cpu) < len(w.here)*64 {
		w.here = processors{}
		w.here[cpu/64] = 1 << (cpu % 64)
		if w.here.apply(0) == 0 && w.mayRun(&w.b.together.widest) && w.here.apply(int(w.note.pid)) == 0 {
			return true
		}
		_ = everyProcessor.apply(0)
	}
	w.holding.Store(false)
	return false
}

// mayRun reports whether the caller still waits and may run on these processors alone. If it
// may on others, somebody outside has said so just now, or it is gone, and its number is anybody's: that
// is left as it is. There is no way to look and change at once, and none to tell our word from
// the same one from outside.
func (w *worker) mayRun(where *processors) bool {
	var theirs processors
	if !w.valid() || theirs.read(int(w.note.pid)) != 0 {
		return false
	}
	if theirs != *where {
		w.b.together.on.Store(false)
		return false
	}
	return true
}

// release gives both back what hold took.
func (w *worker) release() {
	if w.mayRun(&w.here) {
		_ = everyProcessor.apply(int(w.note.pid)) // or it is gone
	}
	_ = everyProcessor.apply(0)
	w.holding.Store(false)
}

// apply lets a thread run on these processors; zero is the calling one.
func (p *processors) apply(tid int) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, uintptr(tid), unsafe.Sizeof(*p), uintptr(unsafe.Pointer(p))) //nolint:gosec // what the system call takes
	return e
}

// read reads where a thread may run.
func (p *processors) read(tid int) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_SCHED_GETAFFINITY, uintptr(tid), unsafe.Sizeof(*p), uintptr(unsafe.Pointer(p))) //nolint:gosec // what the system call takes
	return e
}

func (p *processors) count() (n int) {
	for _, w := range p {
		n += bits.OnesCount64(w)
	}
	return n
}
