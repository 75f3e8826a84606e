package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/launcher/sandbox"
)

// At a terminal the command has one of its own, whose name exists inside.
func TestTerminalOfItsOwn(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	c := newConsole(t)
	before := *c.modes()
	cmd := c.start(w.command("run", "--", "/bin/sh", "-c",
		`tty; test -c "$(tty)" && test -t 0 && test -t 1 && test -t 2 && echo all; echo opened >/dev/tty; stty size; ps -o tty= -p $$; read line; echo "got $line"; exit 7`))
	c.sees("/dev/pts/0\r\n")
	c.sees("all\r\nopened\r\n33 111\r\npts/0")
	if !c.raw() {
		t.Error("the caller's terminal is not raw")
	}
	c.types("hello\r")
	c.sees("hello\r\ngot hello\r\n") // the inner terminal echoes, once
	if code := c.ends(cmd); code != 7 {
		t.Errorf("status %d, want 7", code)
	}
	if after := *c.modes(); after != before {
		t.Errorf("the terminal is left as %+v, was %+v", after, before)
	}
}

// Ctrl-C and Ctrl-\ are for whoever is in the foreground, inside.
func TestTerminalKeysMakeSignals(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	for _, tc := range []struct {
		name, key string
		argv      []string
		want      int
	}{
		{"interrupt", "\x03", []string{"/bin/sh", "-c", "echo ready; exec sleep 1000"}, 128 + 2},
		{"quit", "\x1c", []string{"/bin/sh", "-c", "ulimit -c 0; echo ready; exec sleep 1000"}, 128 + 3},
		{"trapped", "\x03", []string{sandbox.InnerExe, countCommand, "1"}, 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newConsole(t)
			cmd := c.start(w.command(append([]string{"run", "--"}, tc.argv...)...))
			c.sees("ready")
			c.types(tc.key)
			if code := c.ends(cmd); code != tc.want {
				t.Errorf("status %d, want %d", code, tc.want)
			}
			if c.raw() {
				t.Error("the terminal is left raw")
			}
		})
	}
}

// A size is passed on at the start and whenever it changes.
func TestTerminalSize(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	c := newConsole(t)
	cmd := c.start(w.command("run", "--", "/bin/sh", "-c", "trap 'stty size' WINCH; stty size; echo ready; until [ -e done ]; do sleep 0.05; done"))
	c.sees("33 111")
	c.sees("ready")
	for _, size := range [][2]uint16{{40, 120}, {10, 20}, {500, 1000}} {
		c.resize(size[0], size[1])
		c.sees(fmt.Sprintf("%d %d", size[0], size[1]))
	}
	if err := os.WriteFile(filepath.Join(w.tree, "done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.ends(cmd); code != 0 {
		t.Errorf("status %d", code)
	}
}

// Nothing is lost on the way out, the last bytes before an end included.
func TestTerminalShowsEverything(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	big := bytes.Repeat([]byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd\n"), 32<<10) // 2 MiB
	if err := os.WriteFile(filepath.Join(w.tree, "big"), big, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c := newConsole(t)
		cmd := c.start(w.command("run", "--", "/bin/sh", "-c", "cat big; printf the-last-bytes; kill -9 $$"))
		if code := c.ends(cmd); code != 128+9 {
			t.Errorf("status %d", code)
		}
		text := c.sees("the-last-bytes")
		if text != shown(string(big)) {
			t.Errorf("%d bytes came, want %d", len(text), len(shown(string(big))))
		}
	}
}

// Nor on the way in: a large paste, to a command that reads slowly, and the end.
func TestTerminalTakesALargePaste(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	c := newConsole(t)
	cmd := c.start(w.command("run", "--", "/bin/sh", "-c", "stty -echo; echo ready; sleep 0.3; sha256sum; echo over"))
	c.sees("ready")
	line := strings.Repeat("x", 1000) + "\n"
	paste := strings.Repeat(line, 1000)
	c.types(paste)
	c.types("\x04")
	got := c.sees("over")
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte(paste))); !strings.Contains(got, want) {
		t.Errorf("got %q, want %s", got, want)
	}
	if code := c.ends(cmd); code != 0 {
		t.Errorf("status %d", code)
	}
}

// Whoever closes the terminal ends the command.
func TestClosedTerminalEndsTheCommand(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for i, tc := range []struct {
		script string
		want   []int
	}{
		{"exec " + sandbox.InnerExe + " " + countCommand + " 1", []int{9}},
		{"echo ready; sleep %s", []int{128 + 1}},
		// Who reads may see the end before it is told.
		{"(trap '' HUP; sleep %s) & echo ready; cat", []int{0, 1, 128 + 1}},
	} {
		script := tc.script
		mark := fmt.Sprintf("%d.%d", 8000+i, os.Getpid())
		if strings.Contains(script, "%s") {
			script = fmt.Sprintf(script, mark)
		}
		c := newConsole(t)
		cmd := w.command("run", "--", "/bin/sh", "-c", script)
		c.start(cmd)
		c.sees("ready")
		_ = c.screen.Close()
		_ = c.keys.Close()
		if code := c.ends(cmd); !slices.Contains(tc.want, code) {
			t.Errorf("%s: status %d", script, code)
		}
		<-a.ended
		within(t, time.Second, "all processes are gone", func() bool { return len(withArgument(t, mark)) == 0 })
	}
}

// A launcher that is killed takes everything along, at a terminal as well.
func TestKilledLauncherLeavesNothingAtATerminal(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	mark := fmt.Sprintf("%d.%d", 9000, os.Getpid())
	c := newConsole(t)
	cmd := c.start(w.command("run", "--", "/bin/sh", "-c", "setsid sleep "+mark+" & sleep "+mark+" & echo ready; trap '' TERM HUP; sleep "+mark))
	c.sees("ready")
	within(t, limit, "the sleeps run", func() bool { return len(withArgument(t, mark)) >= 3 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	within(t, time.Second, "all processes are gone", func() bool { return len(withArgument(t, mark)) == 0 })
	select {
	case <-a.ended:
	case <-time.After(time.Second):
		t.Error("the lease outlives its launcher")
	}
}

// Signals of others reach the command at a terminal, too, and the terminal is restored
// whatever ends it.
func TestSignalsAtATerminal(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	for _, sig := range []syscall.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGABRT, syscall.SIGSYS,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			c := newConsole(t)
			cmd := c.start(w.command("run", "--", sandbox.InnerExe, countCommand, "1"))
			c.sees("ready")
			_ = cmd.Process.Signal(sig)
			code := c.ends(cmd)
			if c.raw() {
				t.Error("the terminal is left raw")
			}
			if crash := sig == syscall.SIGABRT || sig == syscall.SIGSYS; !crash && code != 9 {
				t.Errorf("status %d, want 9", code)
			}
		})
	}
}

// One end that is no terminal: the bytes are somebody else's, and stay as they are.
func TestPipesAtATerminal(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	const ask = `test -t 0; echo "in $?"; test -t 1; echo "out $?"; (: </dev/tty) 2>/dev/null; echo "tty $((!!$?))"`
	t.Run("stdout is a pipe", func(t *testing.T) {
		c := newConsole(t)
		var out bytes.Buffer
		cmd := w.command("run", "--", "/bin/sh", "-c", ask)
		cmd.Stdout = &out
		c.start(cmd)
		if code := c.ends(cmd); code != 0 || out.String() != "in 0\nout 1\ntty 1\n" {
			t.Errorf("status %d, %q", code, out.String())
		}
	})
	t.Run("stdin is a pipe", func(t *testing.T) {
		c := newConsole(t)
		cmd := w.command("run", "--", "/bin/sh", "-c", ask)
		cmd.Stdin = strings.NewReader("")
		c.start(cmd)
		c.sees("in 1\r\nout 0\r\ntty 1\r\n")
		if code := c.ends(cmd); code != 0 {
			t.Errorf("status %d", code)
		}
	})
	t.Run("off", func(t *testing.T) {
		c := newConsole(t)
		cmd := c.start(w.command("run", "--tty", "off", "--", "/bin/sh", "-c", ask))
		c.sees("in 0\r\nout 0\r\ntty 1\r\n")
		if c.ends(cmd) != 0 {
			t.Error("it failed")
		}
	})
	t.Run("on without a terminal", func(t *testing.T) {
		for input, want := range map[string]string{"a line\n": "a line\r\n", "no line": "no line", "": ""} {
			cmd := w.command("run", "--tty", "on", "--", "/bin/sh", "-c", "stty -echo; "+ask+"; cat; exit 3")
			cmd.Stdin = strings.NewReader(input)
			out, _ := cmd.Output()
			if got := string(out); got != "in 0\r\nout 0\r\ntty 0\r\n"+want && got != want+"in 0\r\nout 0\r\ntty 0\r\n"+want {
				t.Errorf("%q: %q", input, got)
			}
			if code := cmd.ProcessState.ExitCode(); code != 3 {
				t.Errorf("status %d", code)
			}
		}
	})
}

// Whoever reads the output of a command at a terminal goes away: so does the command.
func TestReaderGoesAway(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	cmd := w.command("run", "--tty", "on", "--", "yes")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = out.Read(make([]byte, 100))
	_ = out.Close()
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 128+1 && code != 1 {
		t.Errorf("status %d, want that of a hangup or of a write that failed; stderr %q", code, stderr.String())
	}
}

// The launcher's own lines begin at the left edge, and hold no escape sequences.
func TestOwnLinesWhileRaw(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	c := newConsole(t)
	cmd := c.start(w.command("run", "--", "/bin/sh", "-c", "printf '\\033[31mred'; read x"))
	c.sees("\x1b[31mred") // the command's are passed on
	a.crash()
	c.sees("postern: the appliance is gone; requests wait until it is back\r\n")
	a.start()
	c.sees("postern: the appliance is back\r\n")
	c.types("\r")
	if code := c.ends(cmd); code != 0 {
		t.Errorf("status %d", code)
	}
}
