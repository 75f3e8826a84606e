package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postern/launcher/nameguard"
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
		case enterCommand:
			exit(enterTest(os.Args[2]))
		case guardCommand:
			exit(guardTest(os.Args[2]))
		case wrapCommand:
			os.Exit(wrapAndWait(os.Args[2], os.Args[3]))
		case "version": // what a probe runs
			exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

// exit ends without the second that the race detector sleeps in os.Exit: inside there
// is no environment for GORACE to say so.
func exit(code int) { syscall.Exit(code) }

// needBwrap fails a test where there is no bubblewrap: skipped is not proved. `make test`
// installs it.
func needBwrap(tb testing.TB) {
	tb.Helper()
	if _, err := FindBwrap(nil); err != nil {
		tb.Fatalf("a real sandbox is needed, and nothing passes for one: %v", err)
	}
}

// world is a home with a worktree and things that a run must not see.
type world struct {
	home, tree, sibling, run string
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	// Not below /tmp, which the sandbox has its own of; the shortest writable place.
	base := tempDir(tb)
	w := &world{home: base, tree: filepath.Join(base, "tree"), sibling: filepath.Join(base, "sibling"), run: filepath.Join(base, "run")}
	for _, dir := range []string{w.tree, w.sibling, w.run, filepath.Join(base, ".ssh")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	write(tb, filepath.Join(base, ".ssh", "id_ed25519"), "secret key\n")
	write(tb, filepath.Join(w.sibling, "file"), "sibling\n")
	return w
}

func (w *world) profile() *Profile {
	return &Profile{Binds: []Bind{{Path: w.tree}}, Home: w.home, RunDir: w.run, GitDir: w.run}
}

// unguarded is a run in which placeholders keep the names that are not there yet.
func (w *world) unguarded() *Profile {
	p := w.profile()
	p.Guard = GuardOff
	return p
}

// outcome is what one run in a sandbox left.
type outcome struct {
	stdout, stderr string
	status         Status
	facts          *Facts
}

// sandboxed runs one command and waits for it; it fails the test if it cannot.
func sandboxed(tb testing.TB, p *Profile, argv ...string) outcome {
	tb.Helper()
	out, err := trySandboxed(tb, p, argv...)
	if err != nil {
		tb.Fatalf("run %q: %v\nstderr: %s", argv, err, out.stderr)
	}
	return out
}

func trySandboxed(tb testing.TB, p *Profile, argv ...string) (outcome, error) {
	tb.Helper()
	return tryWith(tb, p, Options{}, argv...)
}

// violating runs a command, and has what was refused for a name told.
func violating(tb testing.TB, p *Profile, told func(nameguard.Violation), argv ...string) outcome {
	tb.Helper()
	out, err := tryWith(tb, p, Options{Violated: Violated{Report: told}}, argv...)
	if err != nil {
		tb.Fatalf("run %q: %v\nstderr: %s", argv, err, out.stderr)
	}
	return out
}

func tryWith(tb testing.TB, p *Profile, o Options, argv ...string) (outcome, error) {
	tb.Helper()
	needBwrap(tb)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	facts, err := Gather(p)
	if err != nil {
		return outcome{}, err
	}
	stdout, stderr := capture(tb), capture(tb)
	o.Stdin, o.Stdout, o.Stderr, o.Timeout = devNull(tb), stdout, stderr, 30*time.Second
	proc, err := Start(ctx, facts, o)
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
	return outcome{slurp(tb, stdout), slurp(tb, stderr), status, facts}, ctx.Err()
}

// capture is a file that a child writes to.
func capture(tb testing.TB) *os.File {
	tb.Helper()
	f, err := os.CreateTemp(tb.TempDir(), "out")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

func slurp(tb testing.TB, f *os.File) string {
	tb.Helper()
	return read(tb, f.Name())
}

func devNull(tb testing.TB) *os.File {
	tb.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

// script runs a shell script inside.
func script(tb testing.TB, p *Profile, text string) outcome {
	tb.Helper()
	return sandboxed(tb, p, "/bin/sh", "-c", text)
}
