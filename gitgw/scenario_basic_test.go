package gitgw_test

import (
	"strings"
	"testing"

	"postern/gitgw"
)

// The scenarios are named after the cases they replay.

func TestA01(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.git("push", "origin", "main:feat").want(t, 0, " * [new branch]      main -> feat")
	w.wantRef("refs/heads/feat", w.head("main"))
	tokens := w.writeTokens()
	if len(tokens) != 1 || !tokens[0].Revoked() {
		t.Fatalf("tokens: %+v, want one, revoked", tokens)
	}
	if got := tokens[0]; len(got.Repositories) != 1 || got.Repositories[0] != "acme/app" || got.Permissions["contents"] != "write" || len(got.Permissions) != 2 {
		t.Errorf("token opens %v with %v", got.Repositories, got.Permissions)
	}
	r := w.record()
	if r.Outcome != gitgw.Accepted || r.Refs[0].Result != "ok" || r.TokenID == "" || !r.Revoked || r.Objects == 0 || r.PackBytes == 0 || r.UpstreamStatus != 200 || r.Session != "s1" {
		t.Errorf("record: %+v", r)
	}
}

func TestA02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	before := w.refs("acme/app")["refs/heads/main"]
	w.git("push", "origin", "main").want(t, 1,
		" ! [remote rejected] main -> main (Control Center policy: push to main is denied (rule 3))",
		"error: failed to push some refs to")
	w.wantRef("refs/heads/main", before)
	w.untouched()
	r := w.record()
	if r.Outcome != gitgw.Refused || r.Refs[0].Verdict != gitgw.Deny || r.Refs[0].Rule != "deny main" || r.Refs[0].Source != "Caddyfile:3" || r.TokenID != "" {
		t.Errorf("record: %+v", r)
	}
}

func TestA03(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.git("push", "--porcelain", "origin", "main").want(t, 1,
		"!\trefs/heads/main:refs/heads/main\t[remote rejected] (Control Center policy: push to main is denied (rule 3))")
	w.untouched()
}

func TestA04(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.git("push", "-q", "origin", "main").want(t, 1,
		" ! [remote rejected] main -> main (Control Center policy: push to main is denied (rule 3))")
	w.untouched()
}

func TestA09(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.git("push", "--dry-run", "origin", "main").want(t, 0, "..", "  main -> main")
	w.untouched()
	if strings.Contains(w.conns.String(), "POST") {
		t.Errorf("a dry run sent commands:\n%s", w.conns)
	}
}

func TestA10(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.mustGit(w.clone, "reset", "-q", "--hard", "origin/main")
	w.git("push", "origin", "main").want(t, 0, "Everything up-to-date")
	w.untouched()
}

// emptyClone is a fresh repository whose origin is acme/empty.
func (w *world) emptyClone(format string) string {
	dir := w.dir + "/empty-" + format
	w.mustGit(w.dir, "init", "-q", "--object-format="+format, dir)
	w.mustGit(dir, "remote", "add", "origin", "https://github.com/acme/empty.git")
	w.commit(dir, "x", "x\n")
	return dir
}

func TestA12(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain, with("acme/empty"))
	dir := w.emptyClone("sha1")
	w.gitIn(dir, nil, "push", "-u", "origin", "HEAD:trunk").want(t, 0, " * [new branch]      HEAD -> trunk")
	if len(w.refs("acme/empty")) != 1 {
		t.Errorf("forge has %v", w.refs("acme/empty"))
	}
}

func TestA13(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain, with("acme/empty"))
	dir := w.emptyClone("sha1")
	w.gitIn(dir, nil, "push", "-u", "origin", "main").want(t, 1,
		" ! [remote rejected] main -> main (Control Center policy: push to main is denied (rule 3))")
	if len(w.refs("acme/empty")) != 0 {
		t.Errorf("forge has %v", w.refs("acme/empty"))
	}
	w.untouched()
}
