//go:build linux

package doors

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/netlab"
)

// world is a worktree of acme/app here, and a lab with the forge and the appliance.
type world struct {
	dir, tree, bin string
	env            []string
	hangUp         io.Closer // ends the lab
	ended          chan struct{}
	said           bytes.Buffer // by the lab; to be read when it has ended
	code           int
	err            error
}

func newWorld(t *testing.T, bin string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // short, for the run directory holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{dir: dir, tree: filepath.Join(dir, "home", "tree"), bin: bin, ended: make(chan struct{})}
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TERM=dumb",
		"HOME=" + filepath.Join(dir, "home"), "POSTERN_RUN=" + filepath.Join(dir, "r"),
	}
	for _, sub := range []string{"forge", "home"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
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
			w.clone(t)
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

// clone makes the worktree, whose submodule lib is another repository of the forge, with
// one commit to push in each.
func (w *world) clone(t *testing.T) {
	t.Helper()
	w.git(t, "", "clone", "-q", w.bare("app"), w.tree)
	w.git(t, w.tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", w.bare("lib"), "lib")
	for dir, name := range map[string]string{w.tree: "app", filepath.Join(w.tree, "lib"): "lib"} {
		w.git(t, dir, "remote", "set-url", "origin", "https://github.com/acme/"+name+".git")
	}
	w.git(t, filepath.Join(w.tree, "lib"), "commit", "-q", "--allow-empty", "-m", "more lib")
	w.git(t, w.tree, "add", "-A")
	w.git(t, w.tree, "commit", "-q", "-m", "more")
	ca, err := os.ReadFile(filepath.Join(w.dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(w.tree, "ca.pem"), ca)
}

func (w *world) bare(name string) string {
	return filepath.Join(w.dir, "forge", "repos", "acme", name+".git")
}

// git runs git here, outside of any run.
func (w *world) git(t *testing.T, dir string, args ...string) string {
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
func (w *world) refs(t *testing.T, name string) string {
	t.Helper()
	return w.git(t, w.bare(name), "for-each-ref")
}

// run runs a script in a run for acme/app, and gives what both streams said.
func (w *world) run(t *testing.T, script string, binds ...string) (out string, code int) {
	t.Helper()
	argv := []string{"run", "--quiet", "--bind", ".", "--repo", "github.com/acme/app", "--env", "GIT_SSL_CAINFO=" + filepath.Join(w.tree, "ca.pem"), "--env", "SSL_CERT_FILE=" + filepath.Join(w.tree, "ca.pem")}
	for _, b := range binds {
		argv = append(argv, "--bind", b+":ro")
	}
	cmd := exec.Command(filepath.Join(w.bin, "postern"), append(argv, "--", "/bin/sh", "-c", script)...)
	cmd.Dir, cmd.Env = w.tree, w.env
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
