//go:build linux

package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/netlab"
)

// world is what a run meets: a worktree here, an appliance and the Internet in a lab.
type world struct {
	dir, tree, bin string
	env            []string

	hangUp io.Closer // ends the lab
	ended  chan struct{}
	said   bytes.Buffer // by the lab; to be read when it has ended
	code   int
	err    error
}

func newWorld(t *testing.T, bin string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") //nolint:usetesting // short, for the run directory holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{dir: dir, tree: filepath.Join(dir, "home", "tree"), bin: bin, ended: make(chan struct{})}
	w.env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin", "LC_ALL=C.UTF-8", "TERM=dumb",
		"HOME=" + filepath.Join(dir, "home"), "POSTERN_RUN=" + filepath.Join(dir, "r"),
	}
	if err := os.MkdirAll(w.tree, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(worldEnv, dir)
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

// end ends the lab, which fails if it saw what it must not.
func (w *world) end(t *testing.T) {
	t.Helper()
	_ = w.hangUp.Close()
	<-w.ended
	if w.code != 0 || w.err != nil {
		t.Errorf("the lab ended with %d, %v:\n%s", w.code, w.err, w.said.String())
	}
}

func (w *world) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.tree, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// result is how a client ended.
type result struct {
	out    string // both streams
	code   int
	denied []string // what the launcher's summary names
}

// run runs a client's script in a run, with host in place of HOST.
func (w *world) run(t *testing.T, c client, host string) result {
	t.Helper()
	summary := filepath.Join(t.TempDir(), "summary")
	argv := []string{"run", "--quiet", "--summary", summary, "--bind", "."}
	for _, b := range c.binds {
		argv = append(argv, "--bind", b+":ro")
	}
	for _, e := range append([]string{"SSL_CERT_FILE=" + filepath.Join(w.tree, authorityFile)}, c.env...) {
		argv = append(argv, "--env", e)
	}
	cmd := exec.Command(filepath.Join(w.bin, "postern"), append(argv, "--", "/bin/sh", "-c", "set -e\n"+strings.ReplaceAll(c.script, "HOST", host))...)
	cmd.Dir, cmd.Env = w.tree, w.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	r := result{out: out.String(), code: cmd.ProcessState.ExitCode()}
	var told struct {
		Denied []struct{ Target, Code string }
	}
	data, err := os.ReadFile(summary)
	if err == nil {
		err = json.Unmarshal(data, &told)
	}
	if err != nil {
		t.Fatalf("read the summary: %v\n%s", err, r.out)
	}
	for _, d := range told.Denied {
		r.denied = append(r.denied, d.Target+" "+d.Code)
	}
	return r
}
