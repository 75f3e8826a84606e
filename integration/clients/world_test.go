//go:build linux

package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/world"
)

// place is where clients run: a worktree here; the appliance and the Internet are in a lab.
type place struct {
	*world.World
	env []string
}

func newWorld(t *testing.T) *place {
	t.Helper()
	w := world.Start(t, world.Binaries(t), "home/tree")
	return &place{w, w.Env("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin")}
}

func (w *place) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.Tree, name), []byte(text), 0o644); err != nil {
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
func (w *place) run(t *testing.T, c client, host string) result {
	t.Helper()
	summary := filepath.Join(t.TempDir(), "summary")
	argv := []string{"run", "--quiet", "--summary", summary, "--bind", "."}
	for _, b := range c.binds {
		argv = append(argv, "--bind", b+":ro")
	}
	for _, e := range append([]string{"SSL_CERT_FILE=" + filepath.Join(w.Tree, authorityFile)}, c.env...) {
		argv = append(argv, "--env", e)
	}
	cmd := exec.Command(filepath.Join(w.Bin, "postern"), append(argv, "--", "/bin/sh", "-c", "set -e\n"+strings.ReplaceAll(c.script, "HOST", host))...)
	cmd.Dir, cmd.Env = w.Tree, w.env
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
