package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The broker lives in the launcher: when that is killed everything of the run ends, and
// nothing is made from then on.
func TestKilledBrokerEndsTheRun(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	mark := fmt.Sprintf("%d.%d", 8000, os.Getpid())
	cmd := w.command("run", "--deny-name", "*.key", "--", "/bin/sh", "-c", "setsid sleep "+mark+" & trap '' TERM HUP; echo ready; while :; do echo x > made; mv made moved; echo x > a.key; done 2>/dev/null")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	within(t, 5*time.Second, "files are made", func() bool {
		_, err := os.Stat(filepath.Join(w.tree, "moved"))
		return err == nil
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	within(t, 2*time.Second, "all processes are gone", func() bool { return len(withArgument(t, mark)) == 0 })
	for _, name := range []string{"made", "moved", "a.key"} {
		_ = os.Remove(filepath.Join(w.tree, name))
	}
	time.Sleep(50 * time.Millisecond)
	if left, _ := os.ReadDir(w.tree); len(left) > 0 {
		t.Errorf("%v was made after the end", left)
	}
}

// What a run has at a terminal, and how it ends, is as without a guard.
func TestGuardedRunIsARun(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	for _, tc := range []struct {
		script, want string
		code         int
	}{
		{"echo out; echo err >&2; exit 7", "out\n", 7},
		{"kill -9 $$", "", 137},
		{"exec nothing-of-that-name", "", 127},
		{"printf '#!/bin/sh\necho ran $1\n' > t; chmod +x t; ./t a; printf 'echo bare\n' > u; chmod +x u; ./u; sh -c 'sleep 0.1 & wait'", "ran a\nbare\n", 0},
		{"grep -c . /proc/self/status > n; test -s n && echo ok; id -u > /dev/null; cat /dev/null > /dev/stdout; echo x | tee f | cat", "ok\nx\n", 0},
		{"mkdir -p ~/.cache/x /tmp/y $XDG_RUNTIME_DIR/z; echo a > ~/.cache/x/.env; echo b > /tmp/y/c.key; cat ~/.cache/x/.env /tmp/y/c.key", "a\nb\n", 0},
		{"git init -q r && cd r && git config user.name a && git config user.email a@b && echo x > f && git add f && git commit -qm one && git worktree list | wc -l && git gc -q && git log --format=%s", "1\none\n", 0},
	} {
		r := w.postern("run", "--deny-name", "**/.env", "--deny-name", "*.key", "--", "/bin/sh", "-c", tc.script)
		if r.stdout != tc.want || r.code != tc.code {
			t.Errorf("%s: status %d, %q, want %d, %q\n%s", tc.script, r.code, r.stdout, tc.code, tc.want, r.stderr)
		}
	}
	r := w.postern("run", "--deny-name", "*.key", "--", "nothing-of-that-name")
	if r.code != 127 || !strings.Contains(r.stderr, "nothing-of-that-name") {
		t.Errorf("status %d: %s", r.code, r.stderr)
	}
}

// At a terminal, too: the command leads the foreground, keys are signals, and what is said
// through names of the terminal comes out.
func TestGuardedRunAtATerminal(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	c := newConsole(t)
	cmd := c.start(w.command("run", "--deny-name", "*.key", "--", "/bin/sh", "-c",
		`tty; echo opened >/dev/tty; echo again >/dev/stdout; echo x > a.key || echo no; trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done`))
	c.sees("/dev/pts/0\r\nopened\r\nagain\r\n")
	c.sees("no\r\nready\r\n")
	c.types("\x03")
	c.sees("caught")
	if code := c.ends(cmd); code != 9 {
		t.Errorf("status %d", code)
	}
}
