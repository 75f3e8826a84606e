//go:build linux

package doors

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/world"
)

// place is a worktree of acme/app here; the forge and the appliance are in a lab.
type place struct {
	*world.World
	env []string
}

func newWorld(t *testing.T) *place {
	t.Helper()
	w := world.Start(t, world.Binaries(t), "forge")
	p := &place{w, w.Env(os.Getenv("PATH"))}
	p.clone(t)
	return p
}

// clone makes the worktree, whose submodule lib is another repository of the forge, with
// one commit to push in each.
func (w *place) clone(t *testing.T) {
	t.Helper()
	w.git(t, "", "clone", "-q", w.bare("app"), w.Tree)
	w.git(t, w.Tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", w.bare("lib"), "lib")
	for dir, name := range map[string]string{w.Tree: "app", filepath.Join(w.Tree, "lib"): "lib"} {
		w.git(t, dir, "remote", "set-url", "origin", "https://github.com/acme/"+name+".git")
	}
	w.git(t, filepath.Join(w.Tree, "lib"), "commit", "-q", "--allow-empty", "-m", "more lib")
	w.git(t, w.Tree, "add", "-A")
	w.git(t, w.Tree, "commit", "-q", "-m", "more")
	ca, err := os.ReadFile(filepath.Join(w.Dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(w.Tree, "ca.pem"), ca)
}

func (w *place) bare(name string) string {
	return filepath.Join(w.Dir, "forge", "repos", "acme", name+".git")
}

// git runs git here, outside of any run.
func (w *place) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(slices.Clone(w.env), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// refs are the forge's, of a repository.
func (w *place) refs(t *testing.T, name string) string {
	t.Helper()
	return w.git(t, w.bare(name), "for-each-ref")
}

// run runs a script in a run for acme/app, and gives what both streams said.
func (w *place) run(t *testing.T, script string, binds ...string) (out string, code int) {
	t.Helper()
	argv := []string{"run", "--quiet", "--bind", ".", "--repo", "github.com/acme/app", "--env", "GIT_SSL_CAINFO=" + filepath.Join(w.Tree, "ca.pem"), "--env", "SSL_CERT_FILE=" + filepath.Join(w.Tree, "ca.pem")}
	for _, b := range binds {
		argv = append(argv, "--bind", b+":ro")
	}
	cmd := exec.Command(filepath.Join(w.Bin, "postern"), append(argv, "--", "/bin/sh", "-c", script)...)
	cmd.Dir, cmd.Env = w.Tree, w.env
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return said.String(), cmd.ProcessState.ExitCode()
}
