package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SPEC 51: none is the default, nothing overrides it, and native is what has to be
// asked for.
func TestTerminalBackends(t *testing.T) {
	needBwrap(t)
	w := newWorld(t)
	w.write(".ssh/id", "secret", 0o600)
	w.write(".config/postern/launcher.yaml", "", 0o600)
	w.env = append(w.env, "SHELL=/bin/sh", "POSTERN_BACKEND=native-by-environment", "GH_TOKEN=ghs_x", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=a.b", "GIT_CONFIG_VALUE_0=c")
	const ask = `cat ~/.ssh/id; echo; echo "backend $POSTERN_BACKEND"; env | grep -c -e ^GH_TOKEN -e ^GIT_CONFIG; pwd; exit 7`
	for _, tc := range []struct {
		flags []string
		want  string
	}{
		{nil, "secret\nbackend native-by-environment\n4\n"},
		{[]string{"--backend", "none"}, "secret\nbackend native-by-environment\n4\n"},
		{[]string{"--backend", "native"}, "\nbackend native\n0\n"},
		{[]string{"--backend", "docker"}, "\nbackend native\n0\n"}, // SPEC 4
	} {
		args := append(append([]string{"terminal"}, tc.flags...), "--", "/bin/sh", "-c", ask)
		r := w.postern(args...)
		if r.stdout != tc.want+w.tree+"\n" || r.code != 7 {
			t.Errorf("%q: status %d\n%s%s", tc.flags, r.code, r.stdout, r.stderr)
		}
	}
}

// SPEC 9, 54, 55: what cannot be had is refused, and no shell of the host starts instead.
func TestTerminalRefusals(t *testing.T) {
	w := newWorld(t)
	ran := filepath.Join(w.tree, "ran")
	for _, tc := range []struct {
		name  string
		flags []string
		env   []string
		want  []string
	}{
		{"an unknown backend", []string{"--backend", "seatbelt"}, nil, []string{"[usage]", `"seatbelt"`, "microvm", "native", "none"}},
		{"an unknown spelling", []string{"--backend", "NATIVE"}, nil, []string{"[usage]", `"NATIVE"`, "microvm, native, none"}},
		{"no name", []string{"--backend", ""}, nil, []string{"[usage]", "native"}},
		{"a virtual machine", []string{"--backend", "microvm"}, nil, []string{"[backend_unavailable]", "microvm"}},
		{"no home", []string{"--backend", "native"}, []string{"HOME="}, []string{"[bind_refused]", "HOME"}},
		{"an unknown flag", []string{"--sandbox"}, nil, []string{"[usage]"}},
		{"an unknown mode", []string{"--tty", "maybe"}, nil, []string{"[usage]", "auto, on or off"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := w.command(append(append([]string{"terminal"}, tc.flags...), "--", "/usr/bin/touch", ran)...)
			cmd.Env = append(append([]string{}, w.env...), tc.env...)
			out, _ := cmd.CombinedOutput()
			for _, want := range append(tc.want, "postern: refused:") {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in %s", want, out)
				}
			}
			if code := cmd.ProcessState.ExitCode(); code != exitRefused {
				t.Errorf("status %d", code)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("it ran")
			}
		})
	}
}

// SPEC 54: where wrapping is unsupported the session fails.
func TestTerminalWithoutASandbox(t *testing.T) {
	w := newWorld(t)
	defer func(o []string) { starting.Dirs = o }(starting.Dirs)
	starting.Dirs = []string{w.runs} // nothing is in there
	t.Chdir(w.tree)
	t.Setenv("HOME", w.home)
	var stderr strings.Builder
	ran := filepath.Join(w.tree, "ran")
	if code := terminalMain([]string{"--backend", "native", "--", "/usr/bin/touch", ran}, &stderr, &stderr); code != exitRefused {
		t.Errorf("status %d", code)
	}
	if !strings.Contains(stderr.String(), "[bwrap_missing]") {
		t.Errorf("stderr %q", stderr.String())
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a shell of the host was started")
	}
}

// A shell in a sandbox is as good as another: job control, keys, its status; and whoever
// kills the launcher kills it.
func TestTerminalIsInteractive(t *testing.T) {
	needBwrap(t)
	w := newWorld(t)
	mark := fmt.Sprintf("%d.%d", 9300, os.Getpid())
	c := newConsole(t)
	w.env = append(w.env, "PS1=inner> ")
	cmd := c.start(w.command("terminal", "--backend", "native", "--", "bash", "--norc", "--noprofile", "-i"))
	c.sees("inner> ")
	c.types("tty; sleep " + mark + "\r")
	c.sees("/dev/pts/0")
	within(t, limit, "the sleep runs", func() bool { return strings.Contains(states(t, mark), "S") })
	c.types("\x1a")
	c.sees("Stopped")
	c.sees("inner> ")
	c.types("echo here >made; fg\r")
	within(t, limit, "the sleep runs", func() bool { return strings.Contains(states(t, mark), "S") })
	if got := readFile(t, filepath.Join(w.tree, "made")); got != "here\n" {
		t.Errorf("made %q", got)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	within(t, limit, "all is gone", func() bool { return states(t, mark) == "" })
}

// What cannot be run ends as with any shell.
func TestTerminalStatus(t *testing.T) {
	needBwrap(t)
	w := newWorld(t)
	file := w.write("tree/plain", "text", 0o644)
	for _, name := range []string{"none", "native"} {
		for argv, want := range map[string]int{"no-such-shell": 127, file: 126, "/bin/false": 1} {
			if r := w.postern("terminal", "--backend", name, "--", argv); r.code != want {
				t.Errorf("%s, %s: status %d, want %d\n%s", name, argv, r.code, want, r.stderr)
			}
		}
		if r := w.postern("terminal", "--backend", name, "--", "/bin/sh", "-c", "kill -9 $$"); name == "native" && r.code != 128+9 {
			t.Errorf("%s: status %d", name, r.code)
		}
	}
}
