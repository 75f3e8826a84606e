package main

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"postern/launcher/tty"
)

// console is a real terminal with a person at it: the test.
type console struct {
	t       testing.TB
	keys    *os.File // the master
	screen  *os.File // the slave, which the launcher is started at
	mu      sync.Mutex
	text    []byte
	changed chan struct{}
	done    chan struct{}
}

// limit is how long a person waits for what must come.
const limit = 30 * time.Second

func newConsole(tb testing.TB) *console {
	tb.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		tb.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		tb.Fatal(err)
	}
	c := &console{t: tb, keys: os.NewFile(uintptr(fd), "keys"), changed: make(chan struct{}, 1), done: make(chan struct{})}
	if c.screen, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		tb.Fatal(err)
	}
	c.resize(33, 111)
	go c.read()
	tb.Cleanup(func() {
		_ = c.screen.Close()
		_ = c.keys.Close()
		<-c.done
	})
	return c
}

func (c *console) read() {
	defer close(c.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := c.keys.Read(buf)
		c.mu.Lock()
		c.text = append(c.text, buf[:n]...)
		c.mu.Unlock()
		select {
		case c.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// start starts cmd as the leader of a session at this terminal.
func (c *console) start(cmd *exec.Cmd) *exec.Cmd {
	c.t.Helper()
	if cmd.Stdin == nil {
		cmd.Stdin = c.screen
	}
	if cmd.Stdout == nil {
		cmd.Stdout = c.screen
	}
	if cmd.Stderr == nil {
		cmd.Stderr = c.screen
	}
	ctty := 0
	if cmd.Stdin != c.screen {
		ctty = 1
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: ctty}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// ends waits for the end of cmd and gives its status.
func (c *console) ends(cmd *exec.Cmd) int {
	c.t.Helper()
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

func (c *console) types(text string) {
	c.t.Helper()
	if _, err := c.keys.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
}

// sees waits until text is on the screen, and takes all up to it off.
func (c *console) sees(text string) string {
	c.t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		before, after, found := bytes.Cut(c.text, []byte(text))
		if found {
			c.text = bytes.Clone(after)
		}
		c.mu.Unlock()
		if found {
			return string(before)
		}
		select {
		case <-c.changed:
		case <-deadline.C:
			c.t.Fatalf("no %q on the screen; there is %q", text, c.rest())
		}
	}
}

// rest is what is on the screen.
func (c *console) rest() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.text)
}

func (c *console) resize(rows, cols uint16) {
	c.t.Helper()
	if err := tty.SetSize(c.screen, tty.Size{Rows: rows, Cols: cols}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *console) modes() *unix.Termios {
	c.t.Helper()
	m, err := unix.IoctlGetTermios(int(c.screen.Fd()), unix.TCGETS)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// raw reports whether the terminal echoes nothing and makes no signals.
func (c *console) raw() bool {
	m := c.modes()
	return m.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) == 0 && m.Oflag&unix.OPOST == 0
}

// typed is how many bytes wait to be read by whoever sits at the terminal next.
func (c *console) typed() int {
	c.t.Helper()
	m := c.modes()
	canonical := *m
	m.Lflag &^= unix.ICANON // else half a line does not count
	if err := unix.IoctlSetTermios(int(c.screen.Fd()), unix.TCSETS, m); err != nil {
		c.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(c.screen.Fd()), unix.TIOCINQ)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := unix.IoctlSetTermios(int(c.screen.Fd()), unix.TCSETS, &canonical); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// shown is text as a terminal shows it.
func shown(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
