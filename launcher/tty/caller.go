package tty

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Caller is the terminal that the launcher was started at, if it was at one. Its
// methods may be called at any time, from any goroutine.
type Caller struct {
	in    *os.File // nil: what is typed does not come from a terminal
	shown *os.File // nil: what is printed does not go to one

	mu     sync.Mutex
	found  *unix.Termios // the modes to give back
	raw    bool
	paused bool // by Pause, until Resume
	signal chan os.Signal
	closed chan struct{}
}

// NewCaller looks which of the two are terminals.
func NewCaller(stdin, stdout *os.File) *Caller {
	c := &Caller{}
	if m, err := modes(stdin); err == nil {
		c.in, c.shown, c.found = stdin, stdin, m
	}
	if Is(stdout) {
		c.shown = stdout
	}
	return c
}

// both reports whether a person sits at both ends, and waits for us.
func (c *Caller) both(stdout *os.File) bool {
	return c.in != nil && Is(stdout) && Foreground(c.in)
}

// Modes are those that were found; nil where there is no terminal to read from.
func (c *Caller) Modes() *unix.Termios {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

// Size is that of the terminal, or a usual one.
func (c *Caller) Size() Size {
	if c.shown != nil {
		if s, err := GetSize(c.shown); err == nil && s.Rows > 0 && s.Cols > 0 {
			return s
		}
	}
	return fallback
}

// Attach makes the terminal raw, if this process is in its foreground, and reports
// whether what is typed may be read now. Where there is no terminal it always may.
func (c *Caller) Attach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.in == nil || c.raw:
		return true
	case c.paused || !Foreground(c.in):
		return false
	}
	m, err := modes(c.in)
	if err != nil {
		return true // it is gone, which whoever reads will see
	}
	raw := *m
	makeRaw(&raw)
	c.guard()
	if err := setModesOf(c.in, setModes, &raw); err == nil {
		c.found, c.raw = m, true
	}
	return true
}

// Restore gives the terminal its modes back.
func (c *Caller) Restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restore()
	if c.signal != nil {
		signal.Stop(c.signal)
		close(c.closed)
		c.signal = nil
	}
}

func (c *Caller) restore() {
	if !c.raw {
		return
	}
	c.raw = false
	// Whoever is in the foreground instead of us has given it modes of its own. What lies
	// there to be read was for the command, or is a terminal's answer to what the command
	// printed: a shell is not to take it for a line of its user's.
	if Foreground(c.in) {
		_ = setModesOf(c.in, dropAndSet, c.found)
	}
}

// Pause gives the terminal back until Resume: this process is about to be stopped.
func (c *Caller) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
	c.restore()
}

// Resume takes the terminal again, if this process was continued in its foreground.
func (c *Caller) Resume() {
	c.mu.Lock()
	c.paused = false
	c.mu.Unlock()
	c.Attach()
}

// Rescue is deferred by goroutines that run while the terminal is raw: a panic is to
// be read.
func (c *Caller) Rescue() {
	if r := recover(); r != nil {
		c.Restore()
		panic(r)
	}
}

// guard restores the terminal before a signal of which Go would end at once.
func (c *Caller) guard() {
	if c.signal != nil {
		return
	}
	c.signal, c.closed = make(chan os.Signal, 1), make(chan struct{})
	for _, sig := range crashing {
		signal.Notify(c.signal, sig)
	}
	go func(ch <-chan os.Signal, closed <-chan struct{}) {
		select {
		case <-closed:
		case sig := <-ch:
			c.Restore()
			signal.Reset(sig)
			if sig, ok := sig.(syscall.Signal); ok {
				_ = syscall.Kill(os.Getpid(), sig)
			}
		}
	}(c.signal, c.closed)
}

// Writer prints lines to w that begin at the left edge, also while the terminal is raw.
func (c *Caller) Writer(w io.Writer) io.Writer { return &lines{c, w} }

type lines struct {
	c *Caller
	w io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.c.mu.Lock()
	raw := l.c.raw
	l.c.mu.Unlock()
	if !raw {
		return l.w.Write(b)
	}
	if _, err := l.w.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(b), nil
}
