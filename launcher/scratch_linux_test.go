package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Scratch space is there, is the run's alone, and ends with it, whatever TMPDIR is on
// the host.
func TestScratchSpace(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	long := filepath.Join(t.TempDir(), strings.Repeat("t", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tmp := range []string{"", "/nonexistent", long} {
		if tmp != "" {
			w.env = append(w.env, "TMPDIR="+tmp, "TMPPREFIX="+tmp+"/zsh", "XDG_RUNTIME_DIR="+tmp)
		}
		for _, tc := range []struct{ name, needs, script, want string }{
			{"mktemp", "", `d=$(mktemp -d) && touch "$d/f" && stat -c %a "$d"`, "700\n"},
			{"TMPDIR", "", `cd "$TMPDIR" && touch f && ls -A "$TMPDIR" | grep -x f`, "f\n"},
			{"XDG_RUNTIME_DIR", "", `cd "$XDG_RUNTIME_DIR" && touch f && stat -c "%a %u" . && id -u`, "700 UID\nUID\n"},
			{"a here-document of zsh", "zsh", "zsh -c 'cat <<E\nhere\nE\n'", "here\n"},
			{"a here-document of bash", "bash", "bash -c 'cat <<E\nhere\nE\n'", "here\n"},
			{"python", "python3", `/usr/bin/python3 -c 'import tempfile; print(tempfile.gettempdir() == "'"$TMPDIR"'")'`, "True\n"},
			{"short enough for a socket", "", `test ${#TMPDIR} -lt 50 && test ${#XDG_RUNTIME_DIR} -lt 50 && echo yes`, "yes\n"},
			{"nothing is left of earlier runs", "", `ls -A "$TMPDIR" "$XDG_RUNTIME_DIR" | grep -v -e : -e ^$ -e "^w[0-9]*$" -e "^nobody[0-9]*$"; echo done`, "done\n"},
		} {
			t.Run(tc.name+" "+tmp[:min(len(tmp), 5)], func(t *testing.T) {
				if tc.needs != "" {
					if _, err := exec.LookPath(tc.needs); err != nil {
						t.Skipf("SKIPPED, NOT PASSED: %v", err)
					}
				}
				want := strings.ReplaceAll(tc.want, "UID", uid())
				if got := w.script(tc.script); got.stdout != want || got.code != 0 {
					t.Errorf("got %+v, want %q", got, want)
				}
			})
		}
	}
	if left, err := os.ReadDir(long); err != nil || len(left) != 0 {
		t.Errorf("left in the host's TMPDIR: %v, %v", left, err)
	}
}

// No secret of the host is inside that was not named (SPEC 112).
func TestNoSecretsInside(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.env = append(w.env, "TICKETING_API_KEY=host-secret", "FOO_TOKEN=host-secret", "AWS_SECRET_ACCESS_KEY=host-secret", "LD_PRELOAD=", "https_proxy=http://user:host-secret@proxy:1")
	show := `env; cat /proc/1/environ /proc/self/environ 2>/dev/null | tr '\0' '\n'`
	if got := w.script(show); got.code != 0 || strings.Contains(got.stdout, "host-secret") {
		t.Errorf("got %+v", got)
	}
	// A host that composes the environment itself has its own names passed, and the
	// dangerous ones taken out all the same.
	w.env = append(w.env, "POSTERN_ENVIRONMENT=strip")
	got := w.script("env")
	if got.code != 0 || !strings.Contains(got.stdout, "FOO_TOKEN=host-secret") {
		t.Errorf("strip: %+v", got)
	}
	for line := range strings.SplitSeq(got.stdout, "\n") {
		name, value, _ := strings.Cut(line, "=")
		if strings.Contains(value, "host-secret") && name != "FOO_TOKEN" && name != "AWS_SECRET_ACCESS_KEY" || name == "TICKETING_API_KEY" {
			t.Errorf("strip: %s", line)
		}
	}
}

func uid() string { return strconv.Itoa(os.Getuid()) }
