package gitgw_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
)

// The other clients push straight to the gateway's address, since most know no
// pushInsteadOf. They send chunked bodies and no probe.

func TestL01(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	repo, err := git.PlainOpen(w.clone)
	if err != nil {
		t.Fatal(err)
	}
	push := func(spec string) error {
		return repo.PushContext(t.Context(), &git.PushOptions{
			RemoteURL: w.url + "github.com/acme/app.git", RefSpecs: []config.RefSpec{config.RefSpec(spec)},
		})
	}
	err = push("refs/heads/main:refs/heads/main")
	if err == nil || !strings.Contains(err.Error(), "command error on refs/heads/main: Control Center policy: push to main is denied (rule 3)") {
		t.Errorf("refused push: %v", err)
	}
	w.untouched()
	if err := push("refs/heads/main:refs/heads/feat"); err != nil {
		t.Errorf("allowed push: %v", err)
	}
	w.wantRef("refs/heads/feat", w.head("main"))
}

const dulwich = `
import io, sys
from dulwich import porcelain
from dulwich.repo import Repo
said = io.BytesIO()
porcelain.push(Repo(sys.argv[1]), sys.argv[2], [sys.argv[3].encode()], errstream=said)
print(said.getvalue().decode())
sys.exit(1 if b" failed: " in said.getvalue() else 0)
`

func TestL03(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.python(t, "dulwich", dulwich, "refs/heads/main:refs/heads/main").want(t, 1, "Push of ref refs/heads/main failed: Control Center policy: push to main is denied (rule 3)")
	w.untouched()
	w.python(t, "dulwich", dulwich, "refs/heads/main:refs/heads/feat").want(t, 0)
	w.wantRef("refs/heads/feat", w.head("main"))
}

const libgit2 = `
import sys, pygit2
class CB(pygit2.RemoteCallbacks):
    def push_update_reference(self, ref, message):
        print("push_update_reference(%s, %r)" % (ref, message))
        self.failed = message is not None
cb = CB()
pygit2.Repository(sys.argv[1]).remotes.create("gw" + sys.argv[3].replace("/", "").replace(":", ""), sys.argv[2]).push([sys.argv[3]], callbacks=cb)
sys.exit(1 if cb.failed else 0)
`

func TestL04(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.python(t, "pygit2", libgit2, "refs/heads/main:refs/heads/main").want(t, 1, "push_update_reference(refs/heads/main, 'Control Center policy: push to main is denied (rule 3)')")
	w.untouched()
	w.python(t, "pygit2", libgit2, "refs/heads/main:refs/heads/feat").want(t, 0, "push_update_reference(refs/heads/feat, None)")
	w.wantRef("refs/heads/feat", w.head("main"))
}

// python runs a program of the system's Python with a module that may not be
// installed.
func (w *world) python(t *testing.T, module, program, spec string) result {
	t.Helper()
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import "+module).Run() != nil {
		t.Skipf("no %s for %s", module, python)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", program, w.clone, w.url+"github.com/acme/app.git", spec)
	cmd.Env = append(os.Environ(), "HOME="+w.dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	code := 0
	if err != nil {
		code = cmd.ProcessState.ExitCode()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outputs.Write(out.Bytes())
	return result{out.String(), code}
}
