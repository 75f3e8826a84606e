package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// A descriptor leads to a file whatever the mounts say, and /proc/self/fd opens it once
// more with any rights that the file's mode gives: a log that was opened for appending
// could be read, emptied and rewritten, and from a folder the whole host is a few ".."
// away. So the command gets no descriptor of a file: a regular one is relayed through
// a pipe. What is no file of a disk (pipes, sockets, terminals, /dev/null) is handed on
// as it is, and the rest is refused.
//
// A socket belongs to the network that it was made in, and most can be connected anew: one
// of the host's would be the host's whole network. Only those that are connected for life
// are handed on; others are written to from here, and not read.
type stdio struct {
	files  [3]*os.File // the command's
	ours   []*os.File  // the ends that stay here
	theirs []*os.File  // the ends that are the command's alone
	relays []func() error
	done   chan error
}

// relayed makes the command's standard descriptors from those given. observe, if not
// nil, sees what passes on stderr.
func relayed(given [3]*os.File, observe func([]byte)) (_ *stdio, err error) {
	s := &stdio{files: given}
	defer func() {
		if err != nil {
			s.closeTheirs()
			s.closeOurs()
		}
	}()
	var kinds [3]fs.FileInfo
	for i, f := range given {
		if kinds[i], err = f.Stat(); err != nil {
			return nil, refuseStdio(i, "it cannot be used", err)
		}
		var watch func([]byte)
		if i == 2 || i == 1 && sameFile(kinds[1], given[2]) {
			watch = observe
		}
		switch mode := kinds[i].Mode(); {
		case mode&fs.ModeSocket != 0 && i == 0 && !joined(f):
			return nil, refuseStdio(i, "it is a socket, which could be connected to whatever this host reaches", nil)
		case mode&fs.ModeSocket != 0 && !joined(f):
		case mode.IsRegular(), watch != nil && mode&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		case mode&(fs.ModeNamedPipe|fs.ModeSocket) != 0, mode&fs.ModeCharDevice != 0 && harmless(f, kinds[i]):
			continue
		default:
			return nil, refuseStdio(i, "it is "+kindOf(mode), nil)
		}
		if i == 2 && os.SameFile(kinds[1], kinds[2]) && s.files[1] != given[1] {
			// One pipe, so that the order of what is written to either stays.
			s.files[2] = s.files[1]
			continue
		}
		if err := s.relay(i, f, watch); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func sameFile(info fs.FileInfo, f *os.File) bool {
	other, err := f.Stat()
	return err == nil && os.SameFile(info, other)
}

func refuseStdio(i int, why string, err error) error {
	return &Refusal{
		Reason: ReasonStdio, Detail: fmt.Sprintf("the command cannot have the given %s: %s", []string{"stdin", "stdout", "stderr"}[i], why), Err: err,
		Cure: "give it a file, a pipe, a terminal or /dev/null",
	}
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder, through which the whole host could be reached"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "neither a file, a pipe, a socket nor a terminal"
}

// harmless reports whether a character device is a terminal or one of the devices that
// every sandbox has: null, zero, full, random, urandom.
func harmless(f *os.File, info fs.FileInfo) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	terminal := false
	err = raw.Control(func(fd uintptr) {
		_, terr := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		terminal = terr == nil
	})
	st, ok := info.Sys().(*syscall.Stat_t)
	if err != nil || !ok {
		return terminal
	}
	memory := unix.Major(st.Rdev) == 1 && slices.Contains([]uint32{3, 5, 7, 8, 9}, unix.Minor(st.Rdev))
	return terminal || memory
}

// joined reports whether f is one of two Unix sockets that are connected for life, see
// pairTypes. TCP has a way back to unconnected, and datagrams go wherever they are sent.
func joined(f *os.File) bool {
	ok := false
	err := control(f, func(fd int) error {
		domain, derr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		kind, kerr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		_, perr := unix.Getpeername(fd)
		ok = domain == unix.AF_UNIX && slices.Contains(pairTypes, uint32(kind)) //nolint:gosec // a small number
		return errors.Join(derr, kerr, perr)
	})
	return ok && err == nil
}

// relay puts a pipe between the command and f. watch may be nil.
func (s *stdio) relay(i int, f *os.File, watch func([]byte)) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	ours, theirs := r, w
	from, to := r, f
	if i == 0 {
		ours, theirs = w, r
		from, to = f, w
	}
	s.ours, s.theirs, s.files[i] = append(s.ours, ours), append(s.theirs, theirs), theirs
	// A large pipe halves the number of turns; the limit may forbid it.
	_, _ = unix.FcntlInt(theirs.Fd(), unix.F_SETPIPE_SZ, relayBuffer)
	s.relays = append(s.relays, func() error {
		defer ours.Close()
		// Plainly: copy_file_range and splice refuse files opened for appending.
		_, err := io.CopyBuffer(watched{to, watch}, struct{ io.Reader }{from}, make([]byte, relayBuffer))
		if i == 0 {
			return nil // the command need not read it all; what cannot be read has an end
		}
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return nil // who was to read it went away, and the command is told as it would be without us
		}
		return err
	})
	return nil
}

const relayBuffer = 256 << 10

// watched is a writer with an onlooker, who sees what was written once it was.
type watched struct {
	io.Writer
	watch func([]byte)
}

func (w watched) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if w.watch != nil && n > 0 {
		w.watch(b[:n])
	}
	return n, err
}

// start begins to copy, when the command's ends are the command's alone.
func (s *stdio) start() {
	s.closeTheirs()
	s.done = make(chan error, len(s.relays))
	for _, relay := range s.relays {
		go func() { s.done <- relay() }()
	}
}

// wait ends when everything the command wrote has been written on. Nothing holds an end
// of a pipe any more: the sandbox is gone.
func (s *stdio) wait() error {
	if s == nil {
		return nil
	}
	var errs []error
	if s.done != nil {
		for range s.relays {
			errs = append(errs, <-s.done)
		}
		s.relays = nil
	}
	s.closeTheirs()
	s.closeOurs()
	if err := errors.Join(errs...); err != nil {
		return &OutputError{Err: err}
	}
	return nil
}

func (s *stdio) closeTheirs() {
	for _, f := range s.theirs {
		_ = f.Close()
	}
	s.theirs = nil
}

func (s *stdio) closeOurs() {
	for _, f := range s.ours {
		_ = f.Close()
	}
	s.ours = nil
}
