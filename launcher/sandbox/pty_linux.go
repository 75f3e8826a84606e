package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"postern/launcher/tty"
)

// Terminals says whether a command can have a pseudo-terminal of its own, see
// Options.Terminal.
const Terminals = true

// terminal joins the command's pseudo-terminal to the caller's streams.
//
// The command has no descriptor of the caller's terminal, under which it could type for
// whoever reads there next: bytes are all that is passed on. What the command prints is
// passed on as it is, whatever it makes of a terminal: that is what terminals are for.
type terminal struct {
	caller  *tty.Caller
	in, out *os.File
	observe func([]byte)
	stopped func(still func() bool)
	null    *os.File // the sandbox's standard streams, until it was started
	stderr  bool     // the command's goes to the pseudo-terminal, too

	master *os.File
	wake   [2]*os.File // a pipe: a byte has it looked anew who may read, its end ends that
	typed  chan struct{}
	shown  chan error

	lost atomic.Bool // the caller's end is gone
	once sync.Once

	mu   sync.Mutex    // the caller's terminal is ours in a turn, and not between two
	turn atomic.Uint64 // how often the command was continued
}

// newTerminal prepares for a command at a pseudo-terminal, and replaces in given what the
// command shall not have: every descriptor of the caller's terminal.
func newTerminal(o Options, given *[3]*os.File) (*terminal, error) {
	if o.Terminal == nil {
		return nil, nil //nolint:nilnil // a command at the caller's own streams
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	t := &terminal{
		caller: o.Terminal, in: given[0], out: given[1], stopped: o.Stopped,
		null: null, stderr: tty.Is(given[2]),
	}
	given[0], given[1] = null, null
	if t.stderr {
		given[2], t.observe = null, o.Observe
	}
	return t, nil
}

// asked is what PID 1 is told about the pseudo-terminal.
func (t *terminal) asked() *ttyStart {
	if t == nil {
		return nil
	}
	return &ttyStart{Size: t.caller.Size(), Modes: t.caller.Modes(), Stderr: t.stderr}
}

// take makes the relay's end of the descriptor that came with the start.
func (t *terminal) take(fds []int) error {
	if len(fds) != 1 {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return fmt.Errorf("receive pseudo-terminal: %d descriptors, want 1", len(fds))
	}
	// Not blocking, so that closing it ends whoever reads or writes.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return errors.Join(fmt.Errorf("receive pseudo-terminal: %w", err), unix.Close(fds[0]))
	}
	t.master = os.NewFile(uintptr(fds[0]), "pseudo-terminal")
	if !tty.Is(t.master) {
		err := errors.New("receive pseudo-terminal: it is no terminal")
		return errors.Join(err, t.closeMaster())
	}
	return nil
}

func (t *terminal) closeMaster() error {
	err := t.master.Close()
	t.master = nil
	return err
}

// start begins to relay. hangup tells the command that its terminal is gone.
func (t *terminal) start(hangup func()) error {
	if t == nil {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	t.wake = [2]*os.File{r, w}
	t.typed, t.shown = make(chan struct{}), make(chan error, 1)
	t.caller.Attach()
	t.resize() // it may have changed since it was asked for
	go func() {
		defer close(t.typed)
		defer t.caller.Rescue()
		if t.read() {
			t.hangup(hangup)
		}
	}()
	go func() {
		defer t.caller.Rescue()
		err := t.show()
		if err != nil {
			t.hangup(hangup)
		}
		t.shown <- err
	}()
	return nil
}

// hangup is what a modem did when the line broke: everybody at the terminal is told, and
// nothing is read or written any more.
func (t *terminal) hangup(tell func()) {
	t.once.Do(func() {
		t.lost.Store(true)
		tell()
		_ = t.master.Close()
	})
}

// show passes on what the command prints, until nobody has the pseudo-terminal open:
// that is, to the last byte. The error is about where it should go.
func (t *terminal) show() error {
	buf := make([]byte, 32<<10)
	for {
		n, err := t.master.Read(buf)
		if n > 0 {
			if _, err := t.out.Write(buf[:n]); err != nil {
				return err
			}
			if t.observe != nil {
				t.observe(buf[:n])
			}
		}
		if err != nil {
			return nil //nolint:nilerr // EIO is how a pseudo-terminal says that this is all
		}
	}
}

// background is how often it is looked whether this process has come to the foreground:
// a shell says nothing to a job that runs already.
const background = 200 // ms

// read passes on what is typed, until finish. It reports whether the caller's terminal
// is gone.
func (t *terminal) read() (gone bool) {
	const in, wake = 0, 1
	fds := []unix.PollFd{{Fd: descriptor(t.in), Events: unix.POLLIN}, {Fd: descriptor(t.wake[0]), Events: unix.POLLIN}}
	buf := make([]byte, 32<<10)
	last := byte('\n')
	for {
		wait, watched := -1, fds
		if !t.caller.Attach() {
			wait, watched = background, fds[wake:]
		}
		fds[in].Revents, fds[wake].Revents = 0, 0
		if _, err := unix.Poll(watched, wait); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		switch {
		case fds[wake].Revents != 0:
			if n, _ := t.wake[0].Read(buf); n == 0 {
				return false
			}
			continue
		case fds[in].Revents == 0 || !t.caller.Attach():
			continue
		}
		n, err := t.in.Read(buf)
		if text := buf[:n]; len(text) > 0 {
			if _, err := t.master.Write(text); err != nil {
				return false // the command has ended, or everybody was told already
			}
			last = text[len(text)-1]
		}
		if err == nil {
			continue
		}
		if tty.Is(t.in) || !errors.Is(err, io.EOF) {
			return true
		}
		t.end(last)
		return false
	}
}

// end types what ends the input of whoever reads line by line: a terminal has no other
// end. In the middle of a line that has to be done twice.
func (t *terminal) end(last byte) {
	modes := tty.Modes(t.master)
	if modes == nil || modes.Lflag&unix.ICANON == 0 {
		return // it is gone, or gives no key a meaning
	}
	eof := []byte{modes.Cc[unix.VEOF]}
	if last != '\n' {
		eof = append(eof, eof[0])
	}
	_, _ = t.master.Write(eof)
}

// resize gives the command's terminal the size of the caller's.
func (t *terminal) resize() {
	if t != nil && t.master != nil {
		_ = tty.SetSize(t.master, t.caller.Size())
	}
}

// stop is for when PID 1 says that the command was stopped in a turn. It may have been
// continued since, and then that is over.
func (t *terminal) stop(turn uint64) {
	if t != nil && t.stopped != nil && t.pause(turn) {
		t.stopped(func() bool { return t.turn.Load() == turn })
	}
}

// pause gives the caller's terminal back if it is still that turn.
func (t *terminal) pause(turn uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turn.Load() != turn {
		return false
	}
	t.caller.Pause()
	return true
}

// resume takes the caller's terminal again, and begins a turn.
func (t *terminal) resume() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.caller.Resume()
	t.resize()
	if t.wake[1] != nil {
		_, _ = t.wake[1].Write([]byte{0})
	}
	return t.turn.Add(1)
}

// finish waits until everything was shown, and gives the caller's terminal back. The
// sandbox must be gone.
func (t *terminal) finish() error {
	if t == nil {
		return nil
	}
	defer t.caller.Restore()
	t.started()
	if t.master == nil {
		return nil
	}
	var err error
	if t.shown != nil {
		err = <-t.shown
	}
	_ = t.master.Close()
	if t.typed != nil {
		_ = t.wake[1].Close()
		select {
		case <-t.typed:
		case <-time.After(time.Second):
			// Somebody else took what was there to be read. It ends with this process.
			return err
		}
		_ = t.wake[0].Close()
	}
	if err != nil && t.lost.Load() && tty.Is(t.out) {
		err = nil // a terminal that was closed: nobody missed anything
	}
	if err != nil {
		err = &OutputError{Err: err}
	}
	return err
}

// started closes what the child has its own of by now.
func (t *terminal) started() {
	if t != nil && t.null != nil {
		_ = t.null.Close()
		t.null = nil
	}
}

func descriptor(f *os.File) int32 {
	fd := int32(-1)
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(n uintptr) { fd = int32(n) }) //nolint:gosec // descriptors are small
	}
	return fd
}
