package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A slip on the command line is told as one, in words of the command line, before
// anything is started or asked.
func TestSlips(t *testing.T) {
	w := newWorld(t)
	good := w.spec(nil)
	for _, tc := range []struct {
		says string
		args []string
	}{
		{"--bind has no value", []string{"run", "--bind", "--", "true"}},
		{"--policy has no value", []string{"run", "--policy", "--", "true"}},
		{`repository: "acme/x" is not host/owner/name`, []string{"run", "--repo", "acme/x", "--", "true"}},
		{`"x" is not host/owner/name`, []string{"run", "--link", "x", "--", "true"}},
		{`"a b" is not a session id`, []string{"run", "--id", "a b", "--", "true"}},
		{`--unix-sockets "no": want true or false`, []string{"run", "--unix-sockets=no", "--", "true"}},
		{"--hide nowhere: ", []string{"run", "--hide", "nowhere", "--", "true"}},
		{"--protect nowhere: ", []string{"run", "--protect", "nowhere", "--", "true"}},
		{`--events "x": want a number`, []string{"exec", "--spec", good, "--events", "x", "--", "true"}},
		{`--timeout "5": want a time with its unit`, []string{"exec", "--spec", good, "--timeout", "5", "--", "true"}},
		{`--unix-sockets "x": want true or false`, []string{"terminal", "--unix-sockets=x"}},
		{`"x" is too much`, []string{"doctor", "x"}},
		{"unknown flag: --jsn", []string{"doctor", "--jsn"}},
		{`"x" is too much`, []string{"probe", "x"}},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			got := w.postern(tc.args...)
			if got.code != exitRefused || !strings.Contains(got.stderr, tc.says) || !strings.HasSuffix(got.stderr, "[usage]\n") ||
				!strings.Contains(got.stderr, "see postern "+tc.args[0]+" --help") || strings.Contains(got.stderr, "strconv") || got.stdout != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
	if got := w.postern("help", "exec"); got.code != 0 || !strings.Contains(got.stdout, "--spec FILE") {
		t.Errorf("help exec: %+v", got)
	}
}

// What is to be passed and is not there is named: the command would only miss its key.
func TestUnsetVariable(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	got := w.postern("run", "--env", "NO_SUCH_KEY", "--env", "A=b", "--", "true")
	if got.code != 0 || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, "--env NO_SUCH_KEY: it is not set here") {
		t.Errorf("got %+v", got)
	}
	if got := w.postern("run", "-q", "--env", "NO_SUCH_KEY", "--", "true"); got.code != 0 || got.stderr != "" {
		t.Errorf("quiet: %+v", got)
	}
}

// doctor says whether there are settings, and refuses what a run would be refused for.
func TestDoctorSettings(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	if got := w.postern("doctor"); got.code != 0 || !strings.Contains(got.stdout, "settings   ok     none: the defaults hold") {
		t.Errorf("without a file: %+v", got)
	}
	file := filepath.Join(w.home, ".config", "postern", "launcher.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, says := range map[string]string{
		"agent: Ann\n":                 "settings   ok     " + file,
		"repo: acme/x\n":               "read setting repo of " + file,
		"link: [x]\n":                  "read setting link of " + file,
		"allow: [\" \"]\n":             "read setting allow of " + file,
		"publish: [x]\n":               "read setting publish of " + file,
		"host_port: [1:y]\n":           "read setting host_port of " + file,
		"repo: github.com/acme/x/..\n": "settings   FAILS",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := w.postern("doctor")
		if !strings.Contains(got.stdout, says) || (got.code == 0) != strings.Contains(says, " ok ") {
			t.Errorf("%q: %+v", text, got)
		}
		if got := w.postern("run", "--", "true"); (got.code == 0) != strings.Contains(says, " ok ") {
			t.Errorf("%q: the run is of another opinion: %+v", text, got)
		}
	}
}

// A descriptor of this program's own is nobody's to write to, whatever its number.
func TestHandedOver(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd := int(w.Fd())
	if handedOver(fd) == nil {
		t.Error("taken, and it closes on exec")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	if err := handedOver(fd); err != nil {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	// Through the front door: none of these is open as the launcher starts.
	world := newWorld(t)
	newAppliance(t, world.runs)
	for _, n := range []string{"3", "4", "5", "6", "7", "8"} {
		if got := world.postern("run", "--summary", "fd:"+n, "--", "true"); got.code != exitRefused || !strings.Contains(got.stderr, "handed over") {
			t.Errorf("--summary fd:%s: %+v", n, got)
		}
		if got := world.postern("exec", "--spec", world.spec(nil), "--events", n, "--", "true"); got.code != exitRefused || !strings.Contains(got.stderr, "handed over") {
			t.Errorf("--events %s: %+v", n, got)
		}
	}
}
