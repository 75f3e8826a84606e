package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays three parts: the tests, PID 1 of the sandboxes they start,
// and the hostile command inside.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case InitCommand:
			exit(Init(os.Args[2:]))
		case attackCommand:
			exit(attack(os.Args[2:]))
		case placeCommand:
			os.Exit(placeAndWait(os.Args[2]))
		case "version": // what a probe runs
			exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

// exit ends without the second that the race detector sleeps in os.Exit: inside there
// is no environment for GORACE to say so.
func exit(code int) { syscall.Exit(code) }

// needBwrap skips a test where there is no bubblewrap, and says so. `make test`
// installs it.
func needBwrap(t testing.TB) {
	t.Helper()
	if _, err := FindBwrap(nil); err != nil {
		t.Skipf("SKIPPED, NOT PASSED: a real sandbox is needed: %v", err)
	}
}

// world is a home with a worktree and things that a run must not see.
type world struct {
	home, tree, sibling, run string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	// Not below /tmp, which the sandbox has its own of; the shortest writable place.
	base := tempDir(t)
	w := &world{home: base, tree: filepath.Join(base, "tree"), sibling: filepath.Join(base, "sibling"), run: filepath.Join(base, "run")}
	for _, dir := range []string{w.tree, w.sibling, w.run, filepath.Join(base, ".ssh")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(base, ".ssh", "id_ed25519"), "secret key\n")
	write(t, filepath.Join(w.sibling, "file"), "sibling\n")
	return w
}

func (w *world) profile() *Profile {
	return &Profile{Binds: []Bind{{Path: w.tree}}, Home: w.home, RunDir: w.run, GitDir: w.run}
}

// outcome is what one run in a sandbox left.
type outcome struct {
	stdout, stderr string
	status         Status
	facts          *Facts
}

// sandboxed runs one command and waits for it; it fails the test if it cannot.
func sandboxed(t testing.TB, p *Profile, argv ...string) outcome {
	t.Helper()
	out, err := trySandboxed(t, p, argv...)
	if err != nil {
		t.Fatalf("run %q: %v\nstderr: %s", argv, err, out.stderr)
	}
	return out
}

func trySandboxed(t testing.TB, p *Profile, argv ...string) (outcome, error) {
	t.Helper()
	needBwrap(t)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	facts, err := Gather(p)
	if err != nil {
		return outcome{}, err
	}
	stdout, stderr := capture(t), capture(t)
	proc, err := Start(ctx, facts, Options{Stdin: devNull(t), Stdout: stdout, Stderr: stderr, Timeout: 30 * time.Second})
	if err != nil {
		return outcome{}, err
	}
	stop := context.AfterFunc(ctx, proc.Kill)
	defer stop()
	if err := proc.Exec(Command{Argv: argv, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + facts.Home, "LC_ALL=C"}}); err != nil {
		proc.Close()
		return outcome{facts: facts}, err
	}
	status, err := proc.Wait()
	if err != nil {
		return outcome{}, err
	}
	return outcome{slurp(t, stdout), slurp(t, stderr), status, facts}, ctx.Err()
}

// capture is a file that a child writes to.
func capture(t testing.TB) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func slurp(t testing.TB, f *os.File) string {
	t.Helper()
	return read(t, f.Name())
}

func devNull(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// script runs a shell script inside.
func script(t testing.TB, p *Profile, text string) outcome {
	t.Helper()
	return sandboxed(t, p, "/bin/sh", "-c", text)
}
