package tty

import (
	"bytes"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair opens a pseudo-terminal.
func pair(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	var number int
	if cerr := control(master, func(fd int) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// now is what a terminal does at the moment.
func now(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	m, err := modes(f)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// Whatever was called in whatever order, the terminal is raw while it is attached and
// as it was found when it is not.
func TestModesAreGivenBack(t *testing.T) {
	_, slave := pair(t)
	found := now(t, slave)
	c := NewCaller(slave, slave)
	steps := map[byte]func(){'a': func() { c.Attach() }, 'p': c.Pause, 'c': c.Resume, 'r': c.Restore}
	for _, order := range []string{"ar", "aar", "apr", "apcr", "apcpr", "pacr", "appccr", "arar", "rr", "apar", "crapcr"} {
		paused := false
		for i := range order {
			steps[order[i]]()
			switch order[i] {
			case 'p':
				paused = true
			case 'c':
				paused = false
			}
			raw := (order[i] == 'a' || order[i] == 'c') && !paused
			m := now(t, slave)
			if raw && m.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG|unix.IEXTEN) != 0 || raw && m.Oflag&unix.OPOST != 0 || !raw && m != found {
				t.Errorf("%s, step %d: %+v", order, i, m)
			}
		}
		c.Resume()
		c.Restore()
	}
}

// A command can print a question to the terminal, and end: the answer must not be there
// for the shell to read as if its user had typed it.
func TestAnswersAreNotLeftToTheShell(t *testing.T) {
	for name, back := range map[string]func(*Caller){"ended": (*Caller).Restore, "stopped": (*Caller).Pause} {
		t.Run(name, func(t *testing.T) {
			master, slave := pair(t)
			c := NewCaller(slave, slave)
			c.Attach()
			const answer = "\x1b]lrm -rf ~\r\x1b\\"
			if _, err := master.WriteString(answer); err != nil {
				t.Fatal(err)
			}
			waiting := func() (n int) {
				if err := control(slave, func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.TIOCINQ) }); err != nil {
					t.Fatal(err)
				}
				return n
			}
			for deadline := time.Now().Add(20 * time.Second); waiting() < len(answer); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the answer does not arrive")
				}
			}
			back(c)
			// In its own modes the terminal shows whole lines only: look at all of it.
			raw := now(t, slave)
			makeRaw(&raw)
			if err := setModesOf(slave, setModes, &raw); err != nil {
				t.Fatal(err)
			}
			if n := waiting(); n > 0 {
				t.Errorf("%d bytes wait for whoever reads next", n)
			}
		})
	}
}

// A panic is read at a terminal in its own modes.
func TestPanicGivesTheTerminalBack(t *testing.T) {
	_, slave := pair(t)
	found := now(t, slave)
	c := NewCaller(slave, slave)
	c.Attach()
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("the panic became %v", r)
			}
		}()
		defer c.Rescue()
		panic("boom")
	}()
	if m := now(t, slave); m != found {
		t.Errorf("left as %+v", m)
	}
}

func TestSizes(t *testing.T) {
	master, slave := pair(t)
	c := NewCaller(slave, slave)
	if got := c.Size(); got != fallback {
		t.Errorf("a new terminal, which has none, is %v", got)
	}
	want := Size{Rows: 12, Cols: 34, X: 56, Y: 78}
	if err := SetSize(master, want); err != nil {
		t.Fatal(err)
	}
	if got := c.Size(); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if err := SetSize(devNull(t), want); err == nil {
		t.Error("what is no terminal took a size")
	}
	if closed := devNull(t); closed.Close() != nil || Modes(closed) != nil || Modes(devNull(t)) != nil || Modes(slave) == nil {
		t.Error("modes of what is no terminal, or none of one")
	}
	if Is(devNull(t)) || !Is(master) || !Is(slave) {
		t.Error("terminals are not told from others")
	}
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Lines begin at the left edge whether the terminal moves there by itself or not.
func TestWriter(t *testing.T) {
	_, slave := pair(t)
	c := NewCaller(slave, slave)
	var out bytes.Buffer
	w := c.Writer(&out)
	write := func(want string) {
		t.Helper()
		out.Reset()
		if n, err := w.Write([]byte("a\nb\n")); n != 4 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
	write("a\nb\n")
	c.Attach()
	write("a\r\nb\r\n")
	c.Restore()
	write("a\nb\n")
}
