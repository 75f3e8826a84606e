package sandbox

import (
	"fmt"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// pseudo is the pseudo-terminal of a run as PID 1 has it. It belongs to the sandbox's own
// instance of devpts, so that its name exists inside, and nowhere else.
//
// PID 1 is the leader of its session and stays that, the command leads a process group
// in the foreground. So somebody of the same session waits for the command, without
// which the kernel would not let it be stopped by Ctrl-Z.
type pseudo struct {
	master int // until it was handed out
	slave  int // kept open: the far end must not read an end as long as we live
}

// openPseudo makes the pseudo-terminal and takes it as the session's controlling
// terminal.
func openPseudo(t *ttyStart) (_ *pseudo, err error) {
	in := &pseudo{master: -1, slave: -1}
	defer func() {
		if err != nil {
			in.close()
		}
	}()
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	if in.master, err = unix.Open("/dev/ptmx", flags, 0); err != nil {
		return nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(in.master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(in.master, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("unlock a pseudo-terminal: %w", err)
	}
	// Nothing else has run here yet that could have put another file there.
	if in.slave, err = unix.Open("/dev/pts/"+strconv.Itoa(number), flags, 0); err != nil {
		return nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	if t.Modes != nil {
		if err := unix.IoctlSetTermios(in.slave, unix.TCSETS, t.Modes); err != nil {
			return nil, fmt.Errorf("set up a pseudo-terminal: %w", err)
		}
	}
	size := &unix.Winsize{Row: t.Size.Rows, Col: t.Size.Cols, Xpixel: t.Size.X, Ypixel: t.Size.Y}
	if err := unix.IoctlSetWinsize(in.slave, unix.TIOCSWINSZ, size); err != nil {
		return nil, fmt.Errorf("set up a pseudo-terminal: %w", err)
	}
	if err := unix.IoctlSetInt(in.slave, unix.TIOCSCTTY, 0); err != nil {
		return nil, fmt.Errorf("take the pseudo-terminal as controlling terminal: %w", err)
	}
	return in, nil
}

func (in *pseudo) close() {
	for _, fd := range []*int{&in.master, &in.slave} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// standard are the command's standard descriptors.
func (in *pseudo) standard(t *ttyStart) []uintptr {
	if in == nil {
		return []uintptr{0, 1, fdStderr}
	}
	slave := uintptr(in.slave)
	if t.Stderr {
		return []uintptr{slave, slave, slave}
	}
	return []uintptr{slave, slave, fdStderr}
}

// process is how the command begins: in a group of its own, which has the terminal before
// the command does anything. A key that is pressed at once is for it.
func (in *pseudo) process() *syscall.SysProcAttr {
	if in == nil {
		return &syscall.SysProcAttr{Setpgid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: in.slave}
}

// stops is what to wait for beside ends: that the command is stopped at its terminal.
func (in *pseudo) stops() int {
	if in == nil {
		return 0
	}
	return unix.WUNTRACED
}

// groups is who gets a signal for the whole of a command's process group: of what a key
// makes, that is the foreground, as at any terminal. That the terminal is gone, both are
// told.
func (in *pseudo) groups(sig unix.Signal, pid int) []int {
	if in == nil {
		return []int{pid}
	}
	front, err := unix.IoctlGetInt(in.slave, unix.TIOCGPGRP)
	if err != nil || front <= 1 || front == pid {
		return []int{pid}
	}
	switch sig {
	case unix.SIGINT, unix.SIGQUIT:
		return []int{front}
	case unix.SIGHUP:
		return []int{pid, front}
	default:
		return []int{pid}
	}
}

// started says that the command runs, and hands out its terminal.
func (in *initial) started() error {
	m := &message{Type: msgStarted}
	if in.tty == nil {
		return in.send(m)
	}
	err := in.send(m, in.tty.master)
	// The far end alone has it, and the terminal is gone when that is.
	_ = unix.Close(in.tty.master)
	in.tty.master = -1
	return err
}
