package tty

import (
	"os"

	"golang.org/x/sys/unix"
)

// Size is the size of a terminal, in characters and, where it is known, in pixels.
type Size struct {
	Rows, Cols, X, Y uint16
}

// fallback is the size of a terminal that nobody looks at.
var fallback = Size{Rows: 24, Cols: 80}

// Is reports whether f is a terminal.
func Is(f *os.File) bool {
	_, err := modes(f)
	return err == nil
}

// Modes are what a terminal does with what is typed and printed; nil where there is none.
func Modes(f *os.File) *unix.Termios {
	m, err := modes(f)
	if err != nil {
		return nil
	}
	return m
}

// modes are what a terminal does with what is typed and printed.
func modes(f *os.File) (m *unix.Termios, err error) {
	cerr := control(f, func(fd int) { m, err = unix.IoctlGetTermios(fd, getModes) })
	if cerr != nil {
		return nil, cerr
	}
	return m, err
}

// setModesOf changes modes by a request: setModes, or dropAndSet.
func setModesOf(f *os.File, request uint, m *unix.Termios) (err error) {
	if cerr := control(f, func(fd int) { err = unix.IoctlSetTermios(fd, request, m) }); cerr != nil {
		return cerr
	}
	return err
}

// GetSize asks a terminal for its size.
func GetSize(f *os.File) (s Size, err error) {
	cerr := control(f, func(fd int) {
		var w *unix.Winsize
		if w, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
			s = Size{w.Row, w.Col, w.Xpixel, w.Ypixel}
		}
	})
	if cerr != nil {
		return s, cerr
	}
	return s, err
}

// SetSize tells a terminal its size. Who runs in its foreground gets SIGWINCH if that
// is news.
func SetSize(f *os.File, s Size) (err error) {
	cerr := control(f, func(fd int) {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols, Xpixel: s.X, Ypixel: s.Y})
	})
	if cerr != nil {
		return cerr
	}
	return err
}

// Foreground reports whether this process may read from the terminal f without being
// stopped for it. A terminal that is not the one that controls us stops nobody.
func Foreground(f *os.File) bool {
	ours := true
	err := control(f, func(fd int) {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil {
			ours = group == unix.Getpgrp()
		}
	})
	return ours && err == nil
}

// control calls do with the descriptor of f, without changing what f is.
func control(f *os.File, do func(fd int)) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { do(int(fd)) })
}

// makeRaw takes everything out of m that would read or change the bytes on their way.
func makeRaw(m *unix.Termios) {
	m.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	m.Oflag &^= unix.OPOST
	m.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	m.Cflag &^= unix.CSIZE | unix.PARENB
	m.Cflag |= unix.CS8
	m.Cc[unix.VMIN], m.Cc[unix.VTIME] = 1, 0
}
