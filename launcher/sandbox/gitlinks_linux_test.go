package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The user's git would write lines of the run's choice to where a link in its directory
// leads. What git itself makes there is no reason to tell anybody.
func TestLinksInGitDirectoriesAreTold(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	must(t, os.Symlink("/elsewhere", filepath.Join(w.tree, ".git", "old")))
	rc := filepath.Join(w.home, ".bashrc")
	write(t, rc, "# mine\n")
	time.Sleep(linkSlack + 100*time.Millisecond) // that one is older than the run
	out := script(t, w.profile(), `set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
		git switch -q -c topic; git commit -q --allow-empty -m 'fix ; touch pwned #'
		git worktree add -q sub/wt; git init -q --bare bare.git; git clone -q . clone; git -C clone gc -q; ln -s x link; ln -s x clone/link
		ln -sf `+rc+` .git/logs/HEAD; rm -r .git/logs/refs/heads; ln -s `+w.home+` .git/logs/refs/heads; ln -sf `+rc+` .git/COMMIT_EDITMSG
		mkdir -p clone/.git/rebase-merge; ln -s `+rc+` clone/.git/rebase-merge/done; ln -s `+rc+` bare.git/FETCH_HEAD`)
	if out.status.ExitCode() != 0 {
		t.Fatalf("status %d: %s", out.status.ExitCode(), out.stderr)
	}
	var got []string
	for _, c := range out.facts.Inspect() {
		rel, _ := filepath.Rel(w.tree, c.Path)
		got = append(got, rel)
		if !strings.Contains(c.What, w.home) {
			t.Errorf("%s %s does not say where it leads", c.Path, c.What)
		}
	}
	slices.Sort(got)
	want := []string{".git/COMMIT_EDITMSG", ".git/logs/HEAD", ".git/logs/refs/heads", "bare.git/FETCH_HEAD", "clone/.git/rebase-merge/done"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The same in the part of a repository that a linked worktree writes.
func TestLinksInTheLogsOfAWorktreeAreTold(t *testing.T) {
	w := newWorld(t)
	main := filepath.Join(w.home, "main")
	repository(t, main)
	git(t, main, "worktree", "add", "-q", filepath.Join(w.tree, "wt"))
	p := w.profile()
	p.Binds = []Bind{{Path: filepath.Join(w.tree, "wt")}}
	out := script(t, p, `cd "$(git rev-parse --git-common-dir)"; ln -sf /elsewhere logs/refs/heads/main; ln -sf /elsewhere worktrees/wt/ORIG_HEAD`)
	var got []string
	for _, c := range out.facts.Inspect() {
		rel, _ := filepath.Rel(main, c.Path)
		got = append(got, rel)
	}
	slices.Sort(got)
	if want := []string{".git/logs/refs/heads/main", ".git/worktrees/wt/ORIG_HEAD"}; !slices.Equal(got, want) {
		t.Errorf("got %q; stderr %s", got, out.stderr)
	}
}
