package gitgw_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"postern/gitgw"
)

func TestB01(t *testing.T) { t.Parallel(); refuseBoth(t) }
func TestB02(t *testing.T) { t.Parallel(); refuseBoth(t, "--atomic") }

// refuseBoth pushes a forbidden and an allowed ref together.
func refuseBoth(t *testing.T, flags ...string) {
	t.Helper()
	w := newWorld(t, denyMain)
	before := w.refs("acme/app")["refs/heads/main"]
	args := append(append([]string{"push"}, flags...), "origin", "main", "main:agent/x")
	w.git(args...).want(t, 1,
		" ! [remote rejected] main -> main (Control Center policy: push to main is denied (rule 3))",
		" ! [remote rejected] main -> agent/x (Control Center policy: another ref in this push was refused)")
	w.wantRef("refs/heads/main", before)
	w.wantRef("refs/heads/agent/x", "")
	w.untouched()
	if r := w.record(); len(r.Refs) != 2 || r.Outcome != gitgw.Refused {
		t.Errorf("record: %+v", r)
	}
}

func TestB03(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.git("push", "origin", "main:a", "main:b", "main:c").want(t, 0,
		" * [new branch]      main -> a", " * [new branch]      main -> b", " * [new branch]      main -> c")
	for _, ref := range []string{"a", "b", "c"} {
		w.wantRef("refs/heads/"+ref, w.head("main"))
	}
	if n := len(w.writeTokens()); n != 1 {
		t.Errorf("%d write tokens for one push", n)
	}
}

// B04 asks that atomic be offered; then the forge's own refusal of one ref must
// leave the other untouched too.
func TestB04(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	if err := w.hub.Protect("acme/app", "main"); err != nil {
		t.Fatal(err)
	}
	r := w.git("push", "--atomic", "origin", "main", "main:agent/x4")
	r.want(t, 1, "[remote rejected] main -> main (protected branch hook declined)")
	r.lacks(t, "does not support --atomic push")
	w.wantRef("refs/heads/agent/x4", "")
}

func TestB05(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.git("push", "-q", "origin", "main~1:refs/heads/b2").want(t, 0)
	w.git("push", "origin", "main~1:refs/heads/b3", ":b2").want(t, 0,
		" - [deleted]         b2", " * [new branch]      main~1 -> b3")
	w.wantRef("refs/heads/b2", "")
	w.wantRef("refs/heads/b3", w.head("main~1"))
}

func (w *world) branches(n int, under string) {
	w.t.Helper()
	id, file := w.head("main"), filepath.Join(w.clone, ".git", "packed-refs")
	packed, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	// In one file: git would make two for each of them.
	out := bytes.NewBuffer(bytes.Replace(packed, []byte(" sorted"), nil, 1))
	for i := range n {
		fmt.Fprintf(out, "%s refs/heads/%s/branch-with-a-rather-long-name-%d\n", id, under, i)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func TestB07(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push **", "deny many/** # no many"))
	many := 3000
	if os.Getenv(chopEnv) != "" {
		many = 300 // in eight bytes a time they say the same
	}
	w.branches(many, "many")
	r := w.git("push", "origin", "refs/heads/many/*")
	r.want(t, 1, "(Control Center policy: no many)")
	if n := strings.Count(r.out, " ! [remote rejected]"); n != many {
		t.Errorf("%d refusals, want %d", n, many)
	}
	w.untouched()
}

func TestB09(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, func(w *world) { w.gateway.Limits.Commands = 20 })
	w.branches(30, "many")
	r := w.git("push", "origin", "refs/heads/*")
	r.want(t, 1, "Control Center: malformed push: more than 20 refs in one push")
	r.lacks(t, "Everything up-to-date", "RPC failed")
	w.untouched()
	if r := w.record(); r.Outcome != gitgw.Malformed {
		t.Errorf("record: %+v", r)
	}
}

func TestB10(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	dir, err := w.hub.Dir("acme/app")
	if err != nil {
		t.Fatal(err)
	}
	w.mustGit(dir, "update-ref", "refs/pull/1/head", w.refs("acme/app")["refs/heads/main"])
	r := w.git("push", "--mirror", "--dry-run", "origin")
	r.want(t, 0)
	r.lacks(t, "refs/pull/")
	// And for good: the forge's own refs outlive the mirror.
	w.git("push", "--mirror", "origin").want(t, 0)
	if w.refs("acme/app")["refs/pull/1/head"] == "" {
		t.Error("refs/pull/1/head was deleted")
	}
}

func TestB11(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	r := w.git("push", "--mirror", "origin")
	r.want(t, 1, "(Control Center policy: push to main is denied (rule 3))",
		"origin/main -> origin/main (Control Center policy: another ref in this push was refused)")
	w.untouched()
}

func TestC01(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.git("push", "origin", ":main").want(t, 1,
		" ! [remote rejected] main (Control Center policy: push to main is denied (rule 3))")
	w.untouched()
}

func TestC02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.git("push", "-q", "origin", "main:b1").want(t, 0)
	w.mu.Lock()
	w.records = nil
	w.mu.Unlock()
	w.git("push", "origin", ":b1").want(t, 0, " - [deleted]         b1")
	w.wantRef("refs/heads/b1", "")
	if r := w.record(); r.PackBytes != 0 || r.Refs[0].Action != gitgw.ActionDelete || r.Outcome != gitgw.Accepted {
		t.Errorf("record: %+v", r)
	}
	pushes := w.hub.Pushes()
	if last := pushes[len(pushes)-1]; last.Received > 300 {
		t.Errorf("forge got %d bytes for one deletion", last.Received)
	}
}

// Deletions need a rule that names them; the refusal says so.
func TestDeletionNeedsARule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push **"))
	w.git("push", "-q", "origin", "main:b1").want(t, 0)
	w.git("push", "origin", ":b1").want(t, 1,
		" ! [remote rejected] b1 (Control Center policy: no rule allows deleting b1)",
		"remote: Control Center: deletions need a rule that names them, as in: push agent/** delete")
	w.wantRef("refs/heads/b1", w.head("main"))
}

func TestC04(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push **", "deny tag:* # tags are denied"))
	w.mustGit(w.clone, "tag", "-a", "-m", "v1", "v1")
	w.git("push", "origin", "v1").want(t, 1,
		" ! [remote rejected] v1 -> v1 (Control Center policy: tags are denied)")
	w.untouched()
}

func TestC05(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.mustGit(w.clone, "tag", "light")
	w.git("push", "origin", "light").want(t, 0, " * [new tag]         light -> light")
	w.wantRef("refs/tags/light", w.head("main"))
}

func TestC06(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push **", "deny tag:** # tags are denied"))
	w.mustGit(w.clone, "tag", "-a", "-m", "v1", "v1")
	w.mustGit(w.clone, "branch", "feat")
	w.git("push", "--follow-tags", "origin", "feat").want(t, 1,
		" ! [remote rejected] feat -> feat (Control Center policy: another ref in this push was refused)",
		" ! [remote rejected] v1 -> v1 (Control Center policy: tags are denied)")
	w.untouched()
}

// C07: refs outside heads and tags have no rule of their own, so they are
// refused until a rule names them in full.
func TestC07(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push **", "push refs/notes/public"))
	w.mustGit(w.clone, "notes", "add", "-m", "n")
	w.git("push", "origin", "refs/notes/commits:refs/notes/commits").want(t, 1,
		"(Control Center policy: no rule allows push to refs/notes/commits)")
	w.untouched()
	w.git("push", "origin", "refs/notes/commits:refs/notes/public").want(t, 0, "[new reference]")
}

// C09 asks that delete-refs be offered, so that a refused deletion has a reason.
func TestC09(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push ** create update delete", "deny feat delete # keep feat"))
	w.git("push", "-q", "origin", "main:feat").want(t, 0)
	w.git("push", "origin", ":feat").want(t, 1, " ! [remote rejected] feat (Control Center policy: keep feat)")
	w.wantRef("refs/heads/feat", w.head("main"))
}

func TestD03(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push main"))
	r := w.git("push", "origin", "main")
	r.want(t, 0)
	if !regexp.MustCompile(`   [0-9a-f]+\.\.[0-9a-f]+  main -> main`).MatchString(r.out) {
		t.Error(r.out)
	}
	w.wantRef("refs/heads/main", w.head("main"))
}

func TestD06(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.mustGit(w.clone, "reset", "-q", "--hard", "HEAD~2")
	w.commit(w.clone, "c.txt", "other\n")
	r := w.git("push", "--force-with-lease", "origin", "main")
	r.want(t, 0, "main -> main (forced update)")
	w.wantRef("refs/heads/main", w.head("main"))
}

// The path a push takes does not depend on what precedes it: a link of the
// clone's, other spellings of the remote, a submodule.
func TestH01(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.mustGit(w.clone, "remote", "set-url", "origin", "git@github.com:acme/app.git")
	w.git("push", "origin", "main").want(t, 1,
		" ! [remote rejected] main -> main (Control Center policy: push to main is denied (rule 3))")
	w.untouched()
}

func TestH02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.mustGit(w.clone, "remote", "set-url", "origin", "ssh://git@github.com/acme/app.git")
	w.git("push", "origin", "main:feat").want(t, 0, " * [new branch]")
	w.wantRef("refs/heads/feat", w.head("main"))
}

func TestH03(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	before := w.conns.String()
	w.git("fetch", "origin").want(t, 0)
	if w.conns.String() != before {
		t.Errorf("a fetch came to the gateway:\n%s", w.conns)
	}
}

func TestH33(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.mustGit(w.clone, "remote", "add", "ssh1", "git@github.com:acme/app.git")
	w.git("push", "ssh1", "main:feat").want(t, 0, " * [new branch]")
	w.git("fetch", "ssh1").want(t, 0)
}

func TestH34(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, with("acme/lib"))
	if _, err := w.hub.Commit("acme/lib", "main", "first", map[string]string{"l": "l\n"}); err != nil {
		t.Fatal(err)
	}
	w.mustGit(w.clone, "submodule", "-q", "add", "https://github.com/acme/lib.git", "lib")
	w.mustGit(w.clone, "commit", "-q", "-m", "lib")
	w.commit(w.clone+"/lib", "n.txt", "n\n")
	w.mustGit(w.clone, "commit", "-qam", "bump")
	w.git("push", "--recurse-submodules=on-demand", "origin", "main").want(t, 0, "Pushing submodule 'lib'")
	w.wantRef("refs/heads/main", w.head("main"))
	if got := w.refs("acme/lib")["refs/heads/main"]; got != w.mustGit(w.clone+"/lib", "rev-parse", "main") {
		t.Errorf("lib's main is %s", got)
	}
	for _, tok := range w.writeTokens() {
		if len(tok.Repositories) != 1 {
			t.Errorf("a token opens %v", tok.Repositories)
		}
	}
}
