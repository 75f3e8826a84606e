package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startWith starts a sandbox with the bubblewrap of one directory.
func startWith(t *testing.T, dir string, o Options) (*Process, error) {
	t.Helper()
	w := newWorld(t)
	o.Dirs, o.Stdin, o.Stdout, o.Stderr = []string{dir}, devNull(t), capture(t), capture(t)
	p, err := Start(t.Context(), gather(t, w.profile()), o)
	if err != nil {
		if left, _ := filepath.Glob(w.run + "/.*"); len(left) > 0 {
			t.Errorf("a start that failed left %q", left)
		}
	}
	return p, err
}

// A bubblewrap that does not work is refused with the reason it gives, and nothing
// is run instead.
func TestFailingBwrap(t *testing.T) {
	for _, tc := range failures {
		t.Run(tc.name, func(t *testing.T) {
			dir := fakeBwrap(t, "#!/bin/sh\ncat >&2 <<'EOF'\n"+tc.stderr+"\nEOF\nexit 1\n")
			_, err := startWith(t, dir, Options{})
			refusal(t, err, tc.want)
			if strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("the refusal has several lines: %q", err)
			}
		})
	}
}

func TestStrangeBwrap(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		want         Reason
	}{
		{"it ends well and starts nothing", "exit 0", ReasonStart},
		{"it is killed", "kill -KILL $$", ReasonStart},
		{"it hangs", "exec sleep 100", ReasonTimeout},
		{"it talks nonsense", "printf 'hello, world' >&3; exec sleep 100", ReasonTimeout},
		{"it sends a message out of order", `printf '\000\000\000\020{"type":"ready"}' >&3; exec sleep 100`, ReasonProtocol},
		{"it sends listeners that are none", `printf '\000\000\000\024{"type":"listeners"}' >&3; exec sleep 100`, ReasonProtocol},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := fakeBwrap(t, "#!/bin/sh\n"+tc.script+"\n")
			timeout := 20 * time.Second // for a busy machine
			if tc.want == ReasonTimeout {
				timeout = 1500 * time.Millisecond
			}
			_, err := startWith(t, dir, Options{Timeout: timeout})
			if tc.want == ReasonTimeout && strings.Contains(tc.script, "hello") {
				// The connection is closed upon nonsense, the process is not.
				refusal(t, err, ReasonTimeout)
				return
			}
			refusal(t, err, tc.want)
		})
	}
}

func TestNotAProgram(t *testing.T) {
	dir := fakeBwrap(t, "\x7fELF nothing more")
	_, err := startWith(t, dir, Options{})
	refusal(t, err, ReasonStart)
}

// Nothing of the caller's environment reaches bubblewrap, and no option stands in
// argv for others to read.
func TestWhatBwrapIsGiven(t *testing.T) {
	t.Setenv("LD_PRELOAD", "")
	t.Setenv("SECRET", "token")
	out := filepath.Join(t.TempDir(), "seen")
	dir := fakeBwrap(t, "#!/bin/sh\n{ echo \"$@\"; env; } > "+out+"\nexit 1\n")
	_, err := startWith(t, dir, Options{})
	refusal(t, err, ReasonStart)
	seen := read(t, out)
	if strings.Contains(seen, "SECRET") || strings.Contains(seen, "--bind") {
		t.Errorf("bubblewrap was given\n%s", seen)
	}
	if want := "-- " + InnerExe + " " + InitCommand + " 3128 1080\n"; !strings.Contains(seen, want) {
		t.Errorf("no %q in\n%s", want, seen)
	}
}

func TestStartIsCancelled(t *testing.T) {
	w := newWorld(t)
	dir := fakeBwrap(t, "#!/bin/sh\nexec sleep 100\n")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	began := time.Now()
	_, err := Start(ctx, gather(t, w.profile()), Options{Dirs: []string{dir}, Stdin: devNull(t), Stdout: capture(t), Stderr: capture(t)})
	if err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("got %v after %s", err, time.Since(began))
	}
}

func TestProbe(t *testing.T) {
	t.Run("it works", func(t *testing.T) {
		needBwrap(t)
		visited := false
		p := Check(t.Context(), Options{}, func(p *Process) { visited = p.Pair().HTTP != nil })
		if !p.Available || !visited || p.Backend != "native" || p.Bridge != "builtin" || p.RequiresInstall || p.Version == "" || p.Reason != "" || !p.LowPorts || p.LowPortsDetail != "" || !p.Names || p.NamesDetail != "" {
			t.Errorf("%+v (visited %t)", p, visited)
		}
		if !strings.Contains(p.Note, "bubblewrap") || !strings.Contains(p.Note, "namespaces") || !strings.Contains(p.Note, "kernel boundary") {
			t.Errorf("note %q", p.Note)
		}
	})
	t.Run("it works, but for low ports", func(t *testing.T) {
		needBwrap(t)
		p := Check(t.Context(), Options{lowDenied: unix.EPERM}, nil)
		if !p.Available || p.LowPorts || !strings.Contains(p.LowPortsDetail, "AppArmor") || !strings.Contains(p.LowPortsDetail, string(ReasonLowPorts)) {
			t.Errorf("%+v", p)
		}
	})
	t.Run("it is missing", func(t *testing.T) {
		p := Check(t.Context(), Options{Dirs: []string{t.TempDir()}}, nil)
		if p.Available || !p.RequiresInstall || p.Reason != ReasonMissing || !strings.Contains(p.Hint, "bubblewrap") || p.Backend != "none" {
			t.Errorf("%+v", p)
		}
	})
	t.Run("it is there and does not work", func(t *testing.T) {
		dir := fakeBwrap(t, "#!/bin/sh\ntest \"$1\" = --version && { echo bubblewrap 9.9; exit; }\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
		p := Check(t.Context(), Options{Dirs: []string{dir}}, nil)
		if p.Available || p.RequiresInstall || p.Reason != ReasonAppArmor || p.Version != "9.9" || p.Hint == "" {
			t.Errorf("%+v", p)
		}
	})
}

// A file that a killed launcher left in the few milliseconds in which it has a name.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".gitconfig-old", ".gitconfig-new", "other"} {
		write(t, filepath.Join(dir, name), "")
	}
	past := time.Now().Add(-time.Hour)
	for _, name := range []string{".gitconfig-old", "other"} {
		must(t, os.Chtimes(filepath.Join(dir, name), past, past))
	}
	sweep(dir)
	for name, there := range map[string]bool{".gitconfig-old": false, ".gitconfig-new": true, "other": true} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}
