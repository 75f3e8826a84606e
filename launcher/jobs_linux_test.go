package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// state is what the host says about the processes with that argument: T is stopped.
func states(t *testing.T, mark string) string {
	t.Helper()
	var out []string
	for _, line := range withArgument(t, mark) {
		pid, _, _ := strings.Cut(line, " ")
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			out = append(out, rest[:1])
		}
	}
	return strings.Join(out, "")
}

// shell is an interactive shell at a terminal, with job control, in which the launcher
// can be started by the name postern.
func shell(t *testing.T, w *world) *console {
	t.Helper()
	c := newConsole(t)
	launcher := w.command()
	bash := *launcher
	bash.Path, bash.Args = "/bin/bash", []string{"bash", "--norc", "--noprofile", "-i"}
	bash.Env = append(bash.Env, "PS1=prompt> ", "exe="+launcher.Path)
	c.start(&bash)
	c.sees("prompt> ")
	c.types(`postern() { "$exe" "$@"; }` + "\n")
	c.sees("prompt> ")
	return c
}

// Ctrl-Z gives the shell back, and fg the command, whether it has a terminal of its own
// or not.
func TestStopAndContinue(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	for i, mode := range []string{"--tty on", "--tty off"} {
		t.Run(mode, func(t *testing.T) {
			mark := fmt.Sprintf("%d.%d", 9100+i, os.Getpid())
			c := shell(t, w)
			c.types(`"$exe" run ` + mode + ` -- sh -c 'echo be"gun"; sleep ` + mark + `; echo status $?'` + "\n")
			c.sees("begun")
			for range 3 {
				within(t, limit, "the sleep runs", func() bool { return states(t, mark) != "" && !strings.Contains(states(t, mark), "T") })
				c.types("\x1a")
				c.sees("Stopped")
				c.sees("prompt> ")
				within(t, limit, "the sleep is stopped", func() bool { return !strings.ContainsAny(states(t, mark), "SR") })
				if c.raw() {
					t.Error("the shell has a raw terminal")
				}
				c.types("fg\n")
				c.sees("sleep " + mark)
				if mode == "--tty on" {
					within(t, limit, "the terminal is raw", c.raw)
				}
			}
			within(t, limit, "the sleep runs", func() bool { return !strings.Contains(states(t, mark), "T") })
			c.types("\x03")
			c.sees("prompt> ")
			c.types("echo sta\"tus\" $?\n")
			c.sees("status 130")
			within(t, limit, "the sleep is gone", func() bool { return states(t, mark) == "" })
		})
	}
}

// In the background it goes on, and fg brings it back also when it was never stopped.
func TestBackground(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	c := shell(t, w)
	c.types(`"$exe" run -- sh -c 'echo be"gun"; read a; echo got $a; read b; echo got $b; exit 5'` + "\n")
	c.sees("begun")
	c.types("\x1a")
	c.sees("Stopped")
	c.sees("prompt> ")
	c.types("bg\n")
	c.sees("prompt> ")
	c.types("echo mi\"ne\"\n") // is the shell's
	c.sees("mine")
	c.sees("prompt> ")
	c.types("fg\n")
	c.sees("read b")
	within(t, limit, "the terminal is raw", c.raw)
	c.types("one\r")
	c.sees("got one")
	c.types("two\r")
	c.sees("got two")
	c.sees("prompt> ")
	c.types("echo sta\"tus\" $?\n")
	c.sees("status 5")
}

// Job control works inside: the shell there stops its own jobs, and the launcher and the
// shell outside hear nothing of it.
func TestJobControlInside(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	mark := fmt.Sprintf("%d.%d", 9200, os.Getpid())
	c := shell(t, w)
	c.types(`"$exe" run --env PS1='inner> ' -- bash --norc --noprofile -i` + "\n")
	c.sees("inner> ")
	c.types("sleep " + mark + "\n")
	within(t, limit, "the sleep runs", func() bool { return strings.ContainsAny(states(t, mark), "S") })
	c.types("\x1a")
	c.sees("Stopped")
	c.sees("inner> ")
	c.types("jobs\n")
	c.sees("Stopped")
	c.types("fg\n")
	within(t, limit, "the sleep runs", func() bool { return strings.ContainsAny(states(t, mark), "S") })
	c.types("\x03")
	c.sees("inner> ")
	c.types("suspend\n") // the inner shell as a whole
	c.sees("Stopped")
	c.sees("prompt> ")
	c.types("fg\n")
	c.sees("bash --norc")
	c.types("\r")
	c.sees("inner> ")
	c.types("exit 6\n")
	c.sees("prompt> ")
	c.types("echo sta\"tus\" $?\n")
	c.sees("status 6")
}

// Where no shell would continue it, nothing stays stopped.
func TestNobodyToContinue(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	c := newConsole(t)
	cmd := c.start(w.command("run", "--", "/bin/sh", "-c", "echo ready; read line; echo got $line; exit 4"))
	c.sees("ready")
	c.types("\x1a")
	time.Sleep(100 * time.Millisecond) // not needed, but nearer to what people do
	c.types("on\r")
	c.sees("got on")
	if code := c.ends(cmd); code != 4 {
		t.Errorf("status %d", code)
	}
}
