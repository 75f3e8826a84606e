package nameguard

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// canaryWait is how long the inside may take to prove itself, in milliseconds, and
// canaryStep how long it is waited for at a time.
const (
	canaryWait = 10_000
	canaryStep = 50
)

// WithheldError says that the broker is kept from something without which it cannot serve: by
// AppArmor or another policy of the system's, by a filter, or by Yama.
type WithheldError struct {
	Doing string // what it is for
	Call  string // what fails
	Err   error
}

// Error implements error.
func (e *WithheldError) Error() string {
	return fmt.Sprintf("the launcher cannot %s (%s): %v", e.Doing, e.Call, e.Err)
}

// Unwrap gives the system's word.
func (e *WithheldError) Unwrap() error { return e.Err }

// keptFrom is the error for a call that failed. The process may just be gone, for which there is
// nobody to ask.
func keptFrom(doing, call string, e unix.Errno) error {
	switch e {
	case unix.EPERM, unix.EACCES, unix.ENOSYS:
		return &WithheldError{Doing: doing, Call: call, Err: e}
	default:
		return fmt.Errorf("guard names: %s (%s): %w", doing, call, e)
	}
}

// callRead is the Call that Yama is about.
const callRead = "process_vm_readv"

// Yama reports whether Yama may be what keeps the broker from it (ptrace_scope of 3).
func (e *WithheldError) Yama() bool { return e.Call == callRead && errors.Is(e.Err, unix.EPERM) }

// prove serves the first call, which is the canary's.
func (w *worker) prove() error {
	b := w.b
	for waited := 0; !b.listener.await(canaryStep); waited += canaryStep {
		if waited >= canaryWait || b.listener.ended() {
			return errors.New("guard names: no call comes out of the sandbox")
		}
	}
	if e := b.listener.receive(&w.note); e != 0 {
		return keptFrom("receive a system call of the sandbox", "SECCOMP_IOCTL_NOTIF_RECV", e)
	}
	if err := w.learn(); err != nil {
		w.answer(fail(unix.EIO))
		return err
	}
	v := w.decide()
	if v.kind != failing || v.err != unix.EACCES || !b.canarySeen.Load() {
		w.answer(fail(unix.EIO))
		return fmt.Errorf("guard names: a call of the sandbox could not be judged (%w)", v.err)
	}
	b.proved.Store(true)
	// Without an answer the inside waits until the listener is closed, so for us.
	if e := w.send(v); e != 0 {
		return keptFrom("answer a system call of the sandbox", "SECCOMP_IOCTL_NOTIF_SEND", e)
	}
	w.new.reset()
	return nil
}

// learn tries what serving takes, on the first call, and reads what holds for all of them.
func (w *worker) learn() error {
	b, pid := w.b, int(w.note.pid)
	if e := w.mayServe(); e != nil {
		return e
	}
	var err error
	if b.mounts, err = readMounts(pid, &b.o); err != nil {
		return err
	}
	mask, ok := readMask(w.status())
	if !ok {
		return errors.New("guard names: the umask of the sandbox cannot be read")
	}
	b.umasks.start = mask
	b.together.begin(pid)
	return nil
}

// mayServe tries each thing that a system may keep from us although it has it. Later a call
// would fail by it, and nobody know why.
func (w *worker) mayServe() error {
	l := w.b.listener
	if e := l.valid(&w.note.id); e != 0 {
		return keptFrom("ask whether a system call still waits", "SECCOMP_IOCTL_NOTIF_ID_VALID", e)
	}
	// Whatever the call is, this is a pointer or nothing that could be read.
	if _, e := readMemory(int(w.note.pid), w.note.args[1], w.text[:1]); e != 0 && e != unix.EFAULT {
		return keptFrom("read what a system call of the sandbox is about", callRead, e)
	}
	fd, v := w.openOwn(int(w.note.pid), atCWD, unix.O_DIRECTORY)
	if v.kind != going {
		return keptFrom("open the folder that a process of the sandbox is in", fmt.Sprintf("/proc/%d/cwd", w.note.pid), v.err)
	}
	closeFD(fd)
	// It looks for the descriptor before anything else, and there is none.
	if _, e := l.add(&addition{id: w.note.id, from: ^uint32(0)}); e != unix.EBADF {
		return keptFrom("give a process of the sandbox a file", "SECCOMP_IOCTL_NOTIF_ADDFD", e)
	}
	return nil
}
