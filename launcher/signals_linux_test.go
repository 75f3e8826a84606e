package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/launcher/sandbox"
)

// lines starts a launcher whose command prints lines, and gives them one by one.
func lines(t *testing.T, cmd *exec.Cmd) (next func(want string)) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { timer.Stop() })
	r := bufio.NewReader(out)
	return func(want string) {
		t.Helper()
		if line, err := r.ReadString('\n'); line != want+"\n" {
			t.Fatalf("got %q, %v; want %q", line, err, want)
		}
	}
}

// countCommand makes the test binary a command that counts what it is sent, and ends with
// 9 when it is as many as asked for. A shell would do, if it did not lose signals as it
// forks.
const countCommand = "__count"

func count(limit string) int {
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	most, _ := strconv.Atoi(limit)
	fmt.Println("ready")
	for n := 1; n <= most; n++ {
		<-ch
		fmt.Println("got", n)
	}
	return 9
}

// Every signal is passed on, each time: what a second one means is the command's to say.
func TestEverySignalEveryTime(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := w.command("run", "--", sandbox.InnerExe, countCommand, "3")
			next := lines(t, cmd)
			next("ready")
			for _, want := range []string{"got 1", "got 2", "got 3"} {
				_ = cmd.Process.Signal(sig)
				next(want)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 9 {
				t.Errorf("status %d, want 9", code)
			}
		})
	}
}

// What ends nothing ends nothing, and reaches the command.
func TestSignalsThatEndNothing(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	cmd := w.command("run", "--", "/bin/sh", "-c", "trap 'echo winch' WINCH; trap 'echo cont' CONT; trap 'echo usr1' USR1; trap 'exit 5' USR2; echo ready; while :; do sleep 0.02; done")
	next := lines(t, cmd)
	next("ready")
	for _, s := range []struct {
		sig  syscall.Signal
		want string
	}{{syscall.SIGWINCH, "winch"}, {syscall.SIGCONT, "cont"}, {syscall.SIGUSR1, "usr1"}, {syscall.SIGWINCH, "winch"}} {
		_ = cmd.Process.Signal(s.sig)
		next(s.want)
	}
	_ = cmd.Process.Signal(syscall.SIGUSR2)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("status %d, want 5", code)
	}
}

// Without a terminal and a shell to continue it, a launcher that is asked to stop does
// not stay stopped, nor does its command.
func TestStopWithoutAShell(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	cmd := w.command("run", "--", "/bin/sh", "-c", "trap 'echo cont' CONT; trap 'exit 5' USR1; echo ready; while :; do sleep 0.02; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	next := lines(t, cmd)
	next("ready")
	_ = cmd.Process.Signal(syscall.SIGTSTP)
	next("cont")
	_ = cmd.Process.Signal(syscall.SIGUSR1)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("status %d, want 5", code)
	}
}

// What is denied at the command's own terminal is told at the end of the run, like what
// is denied in a pipe; and not a byte of it is another.
func TestViolationsAtATerminal(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	c := newConsole(t)
	w.write("tree/kept-away", "", 0o644)
	cmd := c.start(w.command("run", "--hide", "kept-away", "--", "/bin/sh", "-c", "cat kept-away; printf '\\000\\377\\033[0mend'; exit 3"))
	if code := c.ends(cmd); code != 3 {
		t.Errorf("status %d", code)
	}
	text := c.sees("\x00\xff\x1b[0mend")
	if want := "cat: kept-away: Permission denied\r\n"; text != want {
		t.Errorf("the command's words are %q, want %q", text, want)
	}
	if told := c.sees("kept-away"); !strings.Contains(told, "postern") || strings.ContainsAny(told, "\x1b\x00") {
		t.Errorf("at the end: %q", told)
	}
}
