package gitgw_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	// It leaves with the report, and does not wait for the answer's end.
	recorded := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.records) == 2
	}
	for deadline := time.Now().Add(20 * time.Second); !recorded() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
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

// isomorphic pushes with isomorphic-git, whose errors have a text and, for a refused
// push, what the report said.
const isomorphic = `
const git = require("isomorphic-git"), http = require("isomorphic-git/http/node"), fs = require("fs");
const [dir, url, spec] = process.argv.slice(1), [ref, remoteRef] = spec.split(":");
git.push({ fs, http, dir, url, ref, remoteRef }).then(
	(r) => { console.log("pushed", JSON.stringify(r)); },
	(e) => { console.log(e.code, e.message); process.exitCode = 1; });
`

func TestL02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.node(t, "isomorphic-git", isomorphic, "refs/heads/main:refs/heads/main").want(t, 1,
		"GitPushError", "refs/heads/main: Control Center policy: push to main is denied (rule 3)")
	w.untouched()
	w.node(t, "isomorphic-git", isomorphic, "refs/heads/main:refs/heads/feat").want(t, 0, `"ok":true`, `"refs/heads/feat":{"ok":true`)
	w.wantRef("refs/heads/feat", w.head("main"))
}

// node runs a program of node's with a package that may not be installed: beside the
// other clients, in bin/clients, or where NODE_PATH says.
func (w *world) node(t *testing.T, module, program, spec string) result {
	t.Helper()
	where := "NODE_PATH=" + os.Getenv("NODE_PATH")
	if beside, err := filepath.Abs("../bin/clients/node_modules"); err == nil {
		where += string(os.PathListSeparator) + beside
	}
	look := exec.Command("node", "-e", "require.resolve('"+module+"')")
	look.Env = append(os.Environ(), where)
	if look.Run() != nil {
		t.Skipf("SKIPPED, NOT PASSED: no node with %s (make clients installs it)", module)
	}
	return w.other(t, []string{where}, "node", "-e", program, w.clone, w.url+"github.com/acme/app.git", spec)
}

// python runs a program of the system's Python with a module that may not be
// installed.
func (w *world) python(t *testing.T, module, program, spec string) result {
	t.Helper()
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import "+module).Run() != nil {
		t.Skipf("no %s for %s", module, python)
	}
	return w.other(t, nil, python, "-c", program, w.clone, w.url+"github.com/acme/app.git", spec)
}

// other runs a client that is not git.
func (w *world) other(t *testing.T, env []string, argv ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), "HOME="+w.dir), env...)
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
