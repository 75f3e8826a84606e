package nameguard

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// worker serves calls, one at a time, on a thread of its own. What it needs for that it
// has from the start: nothing is allocated for a call.
type worker struct {
	b     *Broker
	note  notif
	reply reply
	added addition

	old, new slot
	known    known

	how   unix.OpenHow
	stat  unix.Statx_t
	link  [maxPath]byte
	proc  []byte // a path below /proc
	text  [maxPath + maxName + 1]byte
	umask uint32 // of this thread
	masks [256]knownMask

	// sending says that a descriptor was given away that is still open here.
	sending atomic.Bool

	// holding says that a caller is kept on this thread's processor, which here has room
	// for.
	holding atomic.Bool
	here    processors
}

func newWorker(b *Broker) *worker {
	w := &worker{b: b, known: newKnown(), proc: make([]byte, 0, 64)}
	w.old.dir, w.new.dir, w.old.from, w.new.from = -1, -1, -1, -1
	return w
}

// settle makes the thread one that works for others: it is never interrupted (a signal in
// the middle of an answer would leave it half given), has a working directory and a umask
// of its own, and no right that the sandbox does not have, whoever started us.
func (w *worker) settle() error {
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	// Those that a fault of ours raises end the process where they are blocked.
	for _, sig := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL} {
		bits := 8 * int(unsafe.Sizeof(all.Val[0]))
		all.Val[(int(sig)-1)/bits] &^= 1 << ((int(sig) - 1) % bits)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return os.NewSyscallError("pthread_sigmask", err)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	w.umask = 0o77
	unix.Umask(int(w.umask))
	if err := unix.Fchdir(w.b.root); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, e := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&none[0])), 0); e != 0 { //nolint:gosec // x/sys takes one element, the kernel reads two
		return os.NewSyscallError("capset", e)
	}
	return nil
}

// loop serves until nobody is left who could ask.
func (w *worker) loop() error {
	for {
		switch e := w.b.listener.receive(&w.note); e {
		case 0:
			w.serve()
		case unix.EINTR:
		case unix.ENOENT:
			if w.b.listener.ended() {
				return nil
			}
		default:
			return os.NewSyscallError("receive a system call", e)
		}
	}
}

// await waits until no other worker is at something, which is over in a moment. It asks the
// kernel in a way that the runtime knows of: a thread that takes no signals cannot be stopped
// elsewhere in such a loop, and all that has to be stopped at times, the other worker on its
// way out of the kernel as well, would wait for that for ever.
func (b *Broker) await(self *worker, at func(*worker) *atomic.Bool) {
	for _, w := range b.workers {
		for w != self && at(w).Load() {
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}

// serve serves the call that was received. A fault of ours is a failure of this call.
func (w *worker) serve() {
	defer w.recover()
	w.answer(w.decide())
	w.old.reset()
	w.new.reset()
}

func (w *worker) recover() {
	if r := recover(); r != nil {
		w.sending.Store(false)
		w.answer(fail(unix.EIO))
		w.old.reset()
		w.new.reset()
		w.b.fault(r)
	}
}

// decide does what a call asks for, or says why not.
func (w *worker) decide() verdict {
	n := &w.note
	if n.nr < 0 || int(n.nr) >= len(w.b.dispatch) {
		return fail(unix.ENOSYS)
	}
	a := &n.args
	switch w.b.dispatch[n.nr] {
	case callOpen:
		return w.open(atCWD, a[0], n.word(1), n.word(2))
	case callCreat:
		return w.open(atCWD, a[0], unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, n.word(1))
	case callOpenat:
		return w.open(n.fd(0), a[1], n.word(2), n.word(3))
	case callOpenat2:
		return w.openHow(n.fd(0), a[1], a[2], a[3])
	case callTruncate:
		return w.truncate(a[0], int64(a[1])) //nolint:gosec // as the kernel takes it
	case callMkdir:
		return w.mkdir(atCWD, a[0], n.word(1))
	case callMkdirat:
		return w.mkdir(n.fd(0), a[1], n.word(2))
	case callMknod:
		return w.mknod(atCWD, a[0], n.word(1))
	case callMknodat:
		return w.mknod(n.fd(0), a[1], n.word(2))
	case callSymlink:
		return w.symlink(a[0], atCWD, a[1])
	case callSymlinkat:
		return w.symlink(a[0], n.fd(1), a[2])
	case callLink:
		return w.linkNames(atCWD, a[0], atCWD, a[1], 0)
	case callLinkat:
		return w.linkNames(n.fd(0), a[1], n.fd(2), a[3], n.word(4))
	case callRename:
		return w.rename(atCWD, a[0], atCWD, a[1], 0)
	case callRenameat:
		return w.rename(n.fd(0), a[1], n.fd(2), a[3], 0)
	case callRenameat2:
		return w.rename(n.fd(0), a[1], n.fd(2), a[3], n.word(4))
	case callUnlink:
		return w.remove(atCWD, a[0], 0)
	case callRmdir:
		return w.remove(atCWD, a[0], unix.AT_REMOVEDIR)
	case callUnlinkat:
		return w.remove(n.fd(0), a[1], n.word(2))
	case callBind:
		return w.bind(n.fd(0), a[1], n.word(2))
	case callUmask:
		w.b.umasks.changed(n.word(0))
		return verdict{kind: passing}
	case callChmod:
		w.b.barrier(w)
		return verdict{kind: passing}
	case callPlaceOf:
		if int(n.word(0)) != w.innerTID() {
			w.b.spread(w)
		}
		return verdict{kind: passing}
	case callPlace:
		w.b.spread(w)
		return verdict{kind: passing}
	case callNone:
	}
	return fail(unix.ENOSYS)
}
