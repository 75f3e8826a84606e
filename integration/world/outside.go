//go:build linux

package world

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"postern/integration/netlab"
)

const (
	binEnv = "POSTERN_TEST_BIN"   // folder of the binaries under test: there is no Go inside
	dirEnv = "POSTERN_TEST_WORLD" // the shared folder
	ready  = "ready"              // a file there
)

// World is what a run meets, seen from outside.
type World struct {
	// Dir is the shared folder, Tree a folder below the home in it, for the run; Bin
	// has the binaries.
	Dir, Tree, Bin string

	hangUp io.Closer // ends the inside
	ended  chan struct{}
	said   bytes.Buffer // to be read when it has ended
	code   int
	err    error
}

// Binaries builds caddy and postern as they are shipped, and says where they are.
func Binaries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, pkg := range map[string]string{"caddy": "postern/caddy-modules/caddy", "postern": "postern/launcher"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", pkg, err, out)
		}
	}
	return dir
}

// Start makes the folder, with others below it by name, and runs the calling test
// inside, until that is ready.
func Start(t *testing.T, bin string, folders ...string) *World {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") //nolint:usetesting // short, for the run directory holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &World{Dir: dir, Tree: filepath.Join(dir, "home", "tree"), Bin: bin, ended: make(chan struct{})}
	for _, name := range append([]string{"home"}, folders...) {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(dirEnv, dir)
	t.Setenv(binEnv, bin)
	stdin, hangUp := io.Pipe()
	w.hangUp = hangUp
	go func() {
		defer close(w.ended)
		w.code, w.err = netlab.Rerun([]string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.count=1"}, stdin, &w.said, &w.said)
	}()
	t.Cleanup(func() {
		_ = hangUp.Close()
		<-w.ended
	})
	for range 1200 {
		if _, err := os.Stat(filepath.Join(dir, ready)); err == nil {
			return w
		}
		select {
		case <-w.ended:
			t.Fatalf("the lab ended with %d, %v:\n%s", w.code, w.err, w.said.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("the lab does not stand")
	return nil
}

// Env is the environment of a user here whose search path is path.
func (w *World) Env(path string) []string {
	return []string{"PATH=" + path, "LC_ALL=C.UTF-8", "TERM=dumb", "HOME=" + filepath.Join(w.Dir, "home"), "POSTERN_RUN=" + runDir(w.Dir)}
}

// End ends the inside, which fails if it saw what it must not.
func (w *World) End(t *testing.T) {
	t.Helper()
	_ = w.hangUp.Close()
	<-w.ended
	if w.code != 0 || w.err != nil {
		t.Errorf("the lab ended with %d, %v:\n%s", w.code, w.err, w.said.String())
	}
}

func runDir(dir string) string { return filepath.Join(dir, "r") }
