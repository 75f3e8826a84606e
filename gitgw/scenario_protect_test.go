package gitgw_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/gitgw"
)

// protecting holds paths to what they were.
func protecting(paths ...string) option {
	return under(func(b *gitgw.RepoRules) {
		for _, text := range paths {
			p, err := gitgw.ParsePathPattern(text)
			if err != nil {
				panic(err)
			}
			b.Conditions.Protect = append(b.Conditions.Protect, p)
		}
	}, "push ** create update force")
}

// protectedFiles are a repository's, with this as its build.
func protectedFiles(build string) map[string]string {
	return map[string]string{
		"a.txt": "a\n", "ci/build.yml": build, "deploy/app.yaml": "one\n", "CODEOWNERS": "one\n",
		"src/a.go": "package a " + build, "src/CODEOWNERS": "two\n", "b.txt": "b\n",
	}
}

// newProtected is a world in which main holds some protected files.
func newProtected(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, protecting("ci/**", "**/CODEOWNERS", "deploy/*.yaml"))
	w.begin("protected", func() {
		for _, files := range []map[string]string{
			protectedFiles("one\n"), protectedFiles("two\n"),
		} {
			if _, err := w.hub.Commit("acme/app", "main", "protected", files); err != nil {
				t.Fatal(err)
			}
		}
		w.mustGit(w.clone, "fetch", "-q", "origin")
		w.mustGit(w.clone, "reset", "-q", "--hard", "origin/main")
	})
	return w
}

// Every way to change what is protected.
func TestProtected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world)
		path   string
	}{
		"written":       {func(w *world) { w.commit(w.clone, "ci/build.yml", "three\n") }, "ci/build.yml"},
		"added":         {func(w *world) { w.commit(w.clone, "ci/sub/new.yml", "new\n") }, "ci/sub"},
		"by its glob":   {func(w *world) { w.commit(w.clone, "deploy/new.yaml", "new\n") }, "deploy/new.yaml"},
		"at any depth":  {func(w *world) { w.commit(w.clone, "x/y/CODEOWNERS", "new\n") }, "x/y/CODEOWNERS"},
		"in other case": {func(w *world) { w.commit(w.clone, "CI/evil.yml", "new\n") }, "CI"},
		"deleted": {func(w *world) {
			w.mustGit(w.clone, "rm", "-q", "-r", "ci")
			w.mustGit(w.clone, "commit", "-q", "-m", "d")
		}, "ci"},
		"moved away": {func(w *world) {
			w.mustGit(w.clone, "mv", "src/CODEOWNERS", "src/owners")
			w.mustGit(w.clone, "commit", "-q", "-m", "m")
		}, "src/CODEOWNERS"},
		"a blob that is there already": {func(w *world) {
			w.mustGit(w.clone, "mv", "-f", "src/a.go", "ci/build.yml")
			w.mustGit(w.clone, "commit", "-q", "-m", "m")
		}, "ci/build.yml"},
		"reverted to what it was": {func(w *world) {
			w.mustGit(w.clone, "checkout", "-q", "HEAD~1", "--", "ci")
			w.mustGit(w.clone, "commit", "-q", "-m", "r")
		}, "ci/build.yml"},
		"its mode": {func(w *world) {
			w.mustGit(w.clone, "update-index", "--chmod=+x", "ci/build.yml")
			w.mustGit(w.clone, "commit", "-q", "-m", "m")
		}, "ci/build.yml"},
		"a link in its place": {func(w *world) {
			w.mustGit(w.clone, "rm", "-q", "-r", "ci")
			if err := os.Symlink("src", filepath.Join(w.clone, "ci")); err != nil {
				w.t.Fatal(err)
			}
			w.mustGit(w.clone, "add", "ci")
			w.mustGit(w.clone, "commit", "-q", "-m", "l")
		}, "ci"},
		"a link above it": {func(w *world) {
			w.mustGit(w.clone, "rm", "-q", "-r", "deploy")
			if err := os.Symlink("src", filepath.Join(w.clone, "deploy")); err != nil {
				w.t.Fatal(err)
			}
			w.mustGit(w.clone, "add", "deploy")
			w.mustGit(w.clone, "commit", "-q", "-m", "l")
		}, "deploy"},
		"a submodule in its place": {func(w *world) {
			w.mustGit(w.clone, "rm", "-q", "-r", "ci")
			w.mustGit(w.clone, "update-index", "--add", "--cacheinfo", "160000,"+w.head("HEAD")+",ci")
			w.mustGit(w.clone, "commit", "-q", "-m", "s")
		}, "ci"},
		"an old state, by a merge with an old commit": {func(w *world) {
			w.mustGit(w.clone, "checkout", "-q", "-b", "old", "HEAD~1")
			w.commit(w.clone, "z.txt", "z\n")
			w.mustGit(w.clone, "checkout", "-q", "main")
			w.mustGit(w.clone, "merge", "-q", "--no-commit", "old")
			w.mustGit(w.clone, "checkout", "-q", "HEAD~1", "--", "ci")
			w.mustGit(w.clone, "commit", "-q", "-m", "merge")
		}, "ci/build.yml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newProtected(t)
			c.change(w)
			w.hub.ForgetRequests()
			targets := []string{"main", "main:agent/new"}
			for _, target := range targets {
				r := w.git("push", "origin", target)
				r.want(t, 1, "(Control Center policy: push changes "+c.path, "which is protected)")
				r.lacks(t, "Everything up-to-date")
			}
			w.wantRef("refs/heads/agent/new", "")
			w.untouched()
		})
	}
}

// What is not protected changes freely, also where what is protected comes along.
func TestUnprotected(t *testing.T) {
	t.Parallel()
	w := newProtected(t)
	w.commit(w.clone, "src/a.go", "three\n")
	w.commit(w.clone, "deploy/readme.md", "new\n")
	w.commit(w.clone, "deploy/sub/x.yaml", "new\n")
	w.git("push", "origin", "main:agent/x").want(t, 0, "[new branch]")
	w.commit(w.clone, "src/b.go", "b\n")
	w.git("push", "origin", "main:agent/x").want(t, 0, "main -> agent/x")
	// Others change what is protected, and the branch takes it over by a merge.
	theirs := protectedFiles("four\n")
	theirs["src/a.go"] = protectedFiles("two\n")["src/a.go"]
	if _, err := w.hub.Commit("acme/app", "main", "theirs", theirs); err != nil {
		t.Fatal(err)
	}
	w.mustGit(w.clone, "fetch", "-q", "origin")
	w.mustGit(w.clone, "merge", "-q", "--no-edit", "origin/main")
	w.git("push", "origin", "main:agent/x").want(t, 0, "main -> agent/x")
	// A change that is taken back within the push is none.
	w.commit(w.clone, "ci/build.yml", "five\n")
	w.commit(w.clone, "ci/build.yml", "four\n")
	w.git("push", "origin", "main:agent/x").want(t, 0, "main -> agent/x")
	// An older commit as a branch of its own changes nothing.
	w.git("push", "origin", w.head("origin/main~2")+":refs/heads/agent/old").want(t, 0)
	// A history of its own, as for a site, holds nothing that is protected.
	w.mustGit(w.clone, "checkout", "-q", "--orphan", "site")
	w.mustGit(w.clone, "rm", "-rqf", ".")
	w.commit(w.clone, "index.html", "hello\n")
	w.git("push", "origin", "site").want(t, 0, "[new branch]")
	w.commit(w.clone, "ci/build.yml", "evil\n")
	w.git("push", "origin", "site").want(t, 1, "push changes ci")
	// Deleting a branch is another rule's business.
	w.git("push", "origin", ":agent/old").want(t, 1, "no rule allows deleting agent/old")
}

// A branch that begins from what somebody else made is compared with the default
// branch, not with that: whoever opens a pull request has a commit on the forge.
func TestProtectedFromOthers(t *testing.T) {
	t.Parallel()
	w := newProtected(t)
	theirs := protectedFiles("evil\n")
	if _, err := w.hub.Commit("acme/app", "theirs", "evil", theirs); err != nil {
		t.Fatal(err)
	}
	w.mustGit(w.clone, "fetch", "-q", "origin")
	refused := "(Control Center policy: push changes ci/build.yml, which is protected)"
	w.git("push", "origin", "origin/theirs:refs/heads/agent/x").want(t, 1, "push changes", "is protected")
	// One that left the default branch before it changed.
	w.mustGit(w.clone, "checkout", "-q", "-b", "x", "origin/main~1")
	w.commit(w.clone, "src/b.go", "b\n")
	w.change(func() { w.gateway.Rules = mustRules(t, "push **") })
	w.commit(w.clone, "ci/build.yml", "evil\n")
	w.git("push", "-q", "origin", "x:pull").want(t, 0)
	w.change(func() { protecting("ci/**")(w) })
	w.mustGit(w.clone, "fetch", "-q", "origin")
	w.commit(w.clone, "src/c.go", "c\n")
	w.git("push", "origin", "x:agent/x").want(t, 1, refused)
	w.wantRef("refs/heads/agent/x", "")
	// What leads back to the state there goes through.
	w.commit(w.clone, "ci/build.yml", "one\n")
	w.git("push", "origin", "x:agent/x").want(t, 0, "[new branch]")
}

// A forge that does not show its trees leaves the question open.
func TestProtectedCannotBeTold(t *testing.T) {
	t.Parallel()
	w := newProtected(t)
	w.commit(w.clone, "src/a.go", "three\n")
	w.change(func() { w.gateway.Forges[0].API = w.gateway.Forges[0].API.JoinPath("nowhere/") })
	w.git("push", "origin", "main:agent/x").want(t, 1, "(Control Center policy: cannot tell whether protected paths change: github.com answered 404)")
	w.untouched()
}

// The first push to a repository has nothing to compare with.
func TestProtectedInEmptyRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t, protecting("ci/**"), with("acme/empty"))
	w.git("push", "https://github.com/acme/empty.git", "main").want(t, 0, "[new branch]")
	w.commit(w.clone, "ci/x.yml", "x\n")
	w.git("push", "https://github.com/acme/empty.git", "main").want(t, 1, "push changes ci")
	if got := w.refs("acme/empty")["refs/heads/main"]; strings.HasPrefix(got, w.head("main")) {
		t.Error("it arrived")
	}
}
