//go:build linux

package doors

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"postern/integration/netlab"
	"postern/integration/world"
)

// bare is git without the run's configuration, as a program that sets its own does it;
// the read token goes along as well as it can.
const bare = `export GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=credential.helper GIT_CONFIG_KEY_1=safe.directory GIT_CONFIG_VALUE_1='*' \
	GIT_CONFIG_VALUE_0='!f() { test "$1" = get && printf "username=x-access-token\npassword=%s\n" "$GH_TOKEN"; }; f'
`

const (
	noWrite = "Write access to repository not granted."
	rule3   = "(Control Center policy: push to main is denied (rule 3))"
)

// TestDoors is every door. The launcher runs here, as a user starts it.
func TestDoors(t *testing.T) {
	if netlab.Inside() {
		serveWorld(t, world.Dir())
		return
	}
	w := newWorld(t)
	for _, d := range []struct {
		name, script string
		code         int
		want         []string
	}{
		// What an honest user writes goes to the gateway, however it is spelt: the rules
		// hold there.
		{"H12 a dot at the end", "git push https://github.com./acme/app.git main", 1, []string{rule3}},
		{"H13 www", "git push https://www.github.com/acme/app.git main", 1, []string{rule3}},
		{"H16 plain HTTP", "git push http://github.com/acme/app.git main", 1, []string{rule3}},
		{"H18 ssh without a user", "git push ssh://github.com/acme/app.git main", 1, []string{rule3}},
		{"H19 git+ssh", "git push git+ssh://git@github.com/acme/app.git main", 1, []string{rule3}},
		// Spellings that are not known end at the forge with the read token.
		{"H14 another user", "git push https://x@github.com/acme/app.git main:door", 128, []string{noWrite, "403"}},
		{"H20 an organisation's ssh user", "git push org-123@github.com:acme/app.git main:door", 128, []string{"Could not read from remote repository"}},
		{"H30 a pushurl", "git -c remote.origin.pushurl=https://github.com/acme/app.git push origin main:door", 128, []string{noWrite, "403"}},
		// So do all without the configuration: there is no credential to write with.
		{"H12 bare", bare + "git push https://github.com./acme/app.git main:door", 128, []string{"fatal: "}},
		{"H13 bare", bare + "git push https://www.github.com/acme/app.git main:door", 128, []string{noWrite, "403"}},
		{"H14 bare", bare + "git push https://x@github.com/acme/app.git main:door", 128, []string{noWrite, "403"}},
		{"H16 bare", bare + "git push http://github.com/acme/app.git main:door", 128, []string{
			"remote: Postern: pushes to github.com go through this run's push gateway.",
			"remote: Push to http://git.internal/github.com/acme/app.git", "error: 403",
		}},
		{"H18 bare", bare + "git push ssh://github.com/acme/app.git main:door", 128, []string{"Could not read from remote repository"}},
		{"H19 bare", bare + "git push git+ssh://git@github.com/acme/app.git main:door", 128, []string{"Could not read from remote repository"}},
		{"H20 bare", bare + "git push org-123@github.com:acme/app.git main:door", 128, []string{"Could not read from remote repository"}},
		{"H30 bare", bare + "git push https://github.com/acme/app.git main:door", 128, []string{noWrite, "403"}},
		// git forgets the variables of its configuration for submodules.
		{"H35 variables instead of a file", bare + `export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_2=url.http://git.internal/github.com/.pushInsteadOf GIT_CONFIG_VALUE_2=https://github.com/
			git push --recurse-submodules=on-demand origin main:door`, 128, []string{"Pushing submodule 'lib'", "Unable to push submodule 'lib'"}},
	} {
		t.Run(d.name, func(t *testing.T) {
			before := w.refs(t, "app") + w.refs(t, "lib")
			started := time.Now()
			out, code := w.run(t, d.script)
			if code != d.code {
				t.Errorf("exit %d, want %d", code, d.code)
			}
			for _, want := range d.want {
				if !strings.Contains(out, want) {
					t.Errorf("git does not say %q", want)
				}
			}
			if took := time.Since(started); took > time.Minute {
				t.Errorf("took %s", took)
			}
			if after := w.refs(t, "app") + w.refs(t, "lib"); after != before {
				t.Errorf("the forge has\n%s\nand had\n%s", after, before)
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
	t.Run("the gateway is open", func(t *testing.T) {
		// Or everything above could have failed for another reason.
		for _, address := range []string{"origin", "http://github.com/acme/app.git", "ssh://github.com/acme/app.git"} {
			ref := strings.Trim(strings.NewReplacer(":", "", "/", "", ".", "").Replace(address), "-")
			if out, code := w.run(t, "git push "+address+" main:"+ref); code != 0 || !strings.Contains(w.refs(t, "app"), "refs/heads/"+ref) {
				t.Errorf("push to %s: exit %d\n%s", address, code, out)
			}
		}
	})
	t.Run("LFS", func(t *testing.T) { lfs(t, w) })
	t.Run("H37 libraries", func(t *testing.T) { libraries(t, w) })
	w.End(t)
}

// libraries push straight to the forge, since none of them knows pushInsteadOf, and then
// to the gateway's own address.
func libraries(t *testing.T, w *place) {
	t.Helper()
	before := w.refs(t, "app")
	self := copyOf(t, w, os.Args[0], "client")
	goGitPush := func(url string) string {
		return "GODEBUG=netdns=go exec " + self + " " + goGitCommand + " " + url + " refs/heads/main:refs/heads/library"
	}
	out, code := w.run(t, goGitPush("https://github.com/acme/app.git"))
	if code != 1 || !strings.Contains(out, "go-git: authorization failed") && !strings.Contains(out, "403") {
		t.Errorf("go-git: exit %d: %s", code, out)
	}
	const js = `const git = require("isomorphic-git"), fs = require("fs"), { execFileSync } = require("child_process");
// Its own client knows no proxy: curl lends its.
const http = { request: async ({ url, method, headers, body }) => {
  const parts = []; if (body) for await (const p of body) parts.push(p);
  const argv = ["-sS", "-o", "-", "-w", "\n%{http_code} %{content_type}", "-X", method || "GET", url];
  for (const [k, v] of Object.entries(headers || {})) argv.push("-H", k + ": " + v);
  const out = execFileSync("curl", argv, { input: Buffer.concat(parts) });
  const cut = out.lastIndexOf("\n"), [code, type] = out.subarray(cut + 1).toString().split(" ");
  return { url, method, statusCode: +code, statusMessage: code, headers: { "content-type": type }, body: [out.subarray(0, cut)] };
} };
git.push({ fs, http, dir: ".", url: "https://github.com/acme/app.git", ref: "main", remoteRef: "library", onAuth: () => ({ username: "x-access-token", password: process.env.GH_TOKEN }), onAuthFailure: () => ({ cancel: true }) })
  .then((r) => console.log("pushed"), (e) => { console.log(e.code, e.message); process.exitCode = 1; });`
	modules, err := filepath.Abs("../../bin/clients/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("isomorphic-git", func(t *testing.T) {
		look := exec.Command("node", "-e", "require.resolve('isomorphic-git')")
		look.Env = append(os.Environ(), "NODE_PATH="+modules)
		if look.Run() != nil {
			t.Skip("SKIPPED, NOT PASSED: no node with isomorphic-git (make clients installs it)")
		}
		put(t, filepath.Join(w.Tree, "push.js"), []byte(js))
		out, code := w.run(t, "CURL_CA_BUNDLE=$SSL_CERT_FILE NODE_PATH="+modules+" exec node push.js", modules)
		if code != 1 || !strings.Contains(out, "403") {
			t.Errorf("exit %d: %s", code, out)
		}
	})
	if after := w.refs(t, "app"); after != before {
		t.Errorf("the forge has\n%s\nand had\n%s", after, before)
	}
	if out, code := w.run(t, goGitPush("http://git.internal/github.com/acme/app.git")); code != 0 || !strings.Contains(w.refs(t, "app"), "refs/heads/library") {
		t.Errorf("go-git at the gateway: exit %d: %s", code, out)
	}
}

// copyOf puts a program into the worktree, where a run finds it.
func copyOf(t *testing.T, w *place, program, name string) string {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.Tree, name)
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// goGitCommand is the argument that makes the test binary a go-git client.
const goGitCommand = "go-git-push"

// goGit pushes the worktree it is started in.
func goGit(url, spec string) int {
	repo, err := git.PlainOpen(".")
	if err == nil {
		err = repo.Push(&git.PushOptions{
			RemoteURL: url, RefSpecs: []config.RefSpec{config.RefSpec(spec)},
			Auth: &githttp.BasicAuth{Username: "x-access-token", Password: os.Getenv("GH_TOKEN")},
		})
	}
	if err != nil {
		fmt.Println("go-git:", err)
		return 1
	}
	return 0
}

// lfs uploads an object from inside a run, to a ref that may be pushed and to one that
// may not.
func lfs(t *testing.T, w *place) {
	t.Helper()
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("SKIPPED, NOT PASSED: git-lfs is not installed")
	}
	w.git(t, w.Tree, "switch", "-q", "-c", "media")
	w.git(t, w.Tree, "lfs", "install", "--local", "--skip-repo")
	w.git(t, w.Tree, "lfs", "track", "*.bin")
	put(t, filepath.Join(w.Tree, "a.bin"), []byte("a large object\n"))
	w.git(t, w.Tree, "add", ".gitattributes", "a.bin")
	w.git(t, w.Tree, "commit", "-q", "-m", "media")
	defer w.git(t, w.Tree, "switch", "-q", "main")
	kept := func() int {
		names, _ := filepath.Glob(filepath.Join(w.Dir, "forge", "lfs", "*"))
		return len(names)
	}
	push := func(ref string) (string, int) {
		return w.run(t, `printf "refs/heads/media $(git rev-parse media) refs/heads/`+ref+` $(printf %040d 0)\n" | git lfs pre-push origin https://github.com/acme/app.git && git push -q origin media:`+ref)
	}
	if out, code := push("main"); code == 0 || !strings.Contains(out, "Control Center policy: push to main is denied (rule 3)") || kept() != 0 {
		t.Errorf("main: exit %d, %d objects: %s", code, kept(), out)
	}
	if out, code := push("media"); code != 0 || kept() != 1 || !strings.Contains(w.refs(t, "app"), "refs/heads/media") {
		t.Errorf("media: exit %d, %d objects: %s", code, kept(), out)
	}
}
