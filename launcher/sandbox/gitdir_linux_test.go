package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// placeCommand makes the test binary a launcher that has placed its placeholders and
// waits to be killed.
const placeCommand = "__place"

func placeAndWait(dir string) int {
	f, err := Gather(&Profile{Binds: []Bind{{Path: dir}}, Home: "/home/u", Guard: GuardOff})
	if err == nil {
		_, err = f.place()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("placed")
	time.Sleep(time.Minute)
	return 0
}

// names lists everything below dir, directories with a slash.
func names(tb testing.TB, dir string) []string {
	tb.Helper()
	var out []string
	must(tb, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if e.IsDir() {
			rel += "/"
		}
		out = append(out, rel)
		return nil
	}))
	return out
}

func sameNames(tb testing.TB, before, after []string) {
	tb.Helper()
	for _, name := range after {
		if !slices.Contains(before, name) {
			tb.Errorf("%s is new", name)
		}
	}
	for _, name := range before {
		if !slices.Contains(after, name) {
			tb.Errorf("%s is gone", name)
		}
	}
}

// gitWorld has every place in which a git directory can lie; none of them was made from
// templates, so that most of the closed set is missing.
func gitWorld(tb testing.TB) (w *world, dirs []string) {
	tb.Helper()
	w = newWorld(tb)
	must(tb, os.Remove(w.tree))
	git(tb, w.home, "init", "-q", "--template=", "-b", "main", w.tree)
	write(tb, w.tree+"/file", "one\n")
	git(tb, w.tree, "add", "file")
	git(tb, w.tree, "commit", "-q", "-m", "one")
	git(tb, w.home, "clone", "-q", "--template=", w.tree, w.home+"/other")
	git(tb, w.tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--name", "group/mod", w.home+"/other", "mod")
	git(tb, w.tree, "commit", "-q", "-m", "mod")
	git(tb, w.tree, "worktree", "add", "-q", "-b", "linked", w.tree+"/linked")
	git(tb, w.tree, "init", "-q", "--template=", "a/b/c/d/e/deep")
	hub := w.home + "/hubs"
	git(tb, w.home, "init", "-q", "--template=", "--bare", hub+"/hub.git")
	return w, []string{
		w.tree + "/.git", w.tree + "/.git/modules/group/mod", w.tree + "/.git/worktrees/linked",
		w.tree + "/a/b/c/d/e/deep/.git", hub + "/hub.git",
	}
}

func (w *world) gitProfile() *Profile {
	p := w.profile()
	p.Binds = append(p.Binds, Bind{Path: w.home + "/hubs"})
	return p
}

// Whatever redirects git, or is run by it, can neither be changed nor made, in any git
// directory; and afterwards the host has nothing that it did not have.
func TestGitDirectoriesCannotBeRedirected(t *testing.T) {
	for _, guard := range []Guard{GuardOn, GuardOff} {
		t.Run(string(guard), func(t *testing.T) { redirected(t, guard) })
	}
}

func redirected(t *testing.T, guard Guard) {
	t.Helper()
	w, dirs := gitWorld(t)
	// A folder that git itself makes is no name of ours; without a guard there is one
	// for the time of the run.
	if guard == GuardOn {
		for _, dir := range dirs {
			if !strings.Contains(dir, "/worktrees/") {
				must(t, os.MkdirAll(dir+"/info", 0o755))
			}
		}
	}
	before := [][]string{names(t, w.tree), names(t, w.home+"/hubs")}
	content := snapshot(t, w.tree)
	var text strings.Builder
	self := InnerExe + " " + attackCommand
	fmt.Fprintf(&text, "echo evil > /tmp/e; mkdir /tmp/d; try() { if ( \"$@\" ) >/dev/null 2>&1; then echo \"$* works\"; fi; }; w() { echo evil > \"$1\"; }\n")
	for _, dir := range dirs {
		linked := strings.Contains(dir, "/worktrees/")
		for _, name := range closedGit {
			if linked && !slices.Contains([]string{"commondir", "gitdir", "config.worktree"}, name) || !linked && name == "gitdir" {
				continue
			}
			path := dir + "/" + name
			parent := filepath.Dir(path)
			fmt.Fprintf(&text, `mkdir -p %[3]s/x; try w %[1]s; try mkdir %[1]s; try ln -s /tmp/e %[1]s; try ln -sf /tmp/e %[1]s; try mv -T %[3]s/x %[1]s; try rm -r %[1]s; try mv %[1]s %[1]s2
				try w %[1]s/post-checkout; try %[2]s rename %[3]s/x %[1]s | grep -v works; try mv %[3]s %[3]s.2; rm -rf %[3]s/x
`, path, self, parent)
		}
	}
	fmt.Fprintf(&text, "git -C %[1]s config core.fsmonitor x && echo config works; git -C %[1]s config --worktree core.fsmonitor x && echo config works\n", w.tree)
	p := w.gitProfile()
	p.Guard = guard
	out := script(t, p, text.String())
	for _, line := range lines("%s", out.stdout) {
		// The helper prints an error and succeeds.
		if line != "" && !strings.Contains(line, InnerExe) {
			t.Error(line)
		}
	}
	sameNames(t, before[0], names(t, w.tree))
	sameNames(t, before[1], names(t, w.home+"/hubs"))
	for _, name := range []string{".git/config", ".git/worktrees/linked/commondir", ".git/worktrees/linked/gitdir"} {
		if got, want := under(snapshot(t, w.tree), name), under(content, name); got != want {
			t.Errorf("%s changed from %s to %s", name, want, got)
		}
	}
	if changes := out.facts.Inspect(); len(changes) != 0 {
		t.Errorf("changes: %v", changes)
	}
}

// A worktree whose git directory is shown beside it, as agent hosts make them.
func TestLinkedWorktreeBesideItsRepository(t *testing.T) {
	w := newWorld(t)
	main := w.home + "/main"
	repository(t, main)
	git(t, main, "worktree", "add", "-q", "-b", "agent/lw", w.home+"/lw")
	p := w.profile()
	p.Binds = []Bind{{Path: w.home + "/lw"}, {Path: main + "/.git"}}
	before := names(t, main)
	out := script(t, p, `G=`+main+`/.git; for f in commondir gitdir config.worktree; do echo /evil > $G/worktrees/lw/$f && echo "$f written"; done 2>/dev/null
		echo x > $G/commondir && echo written; mv $G/worktrees/lw $G/worktrees/x && echo moved; mv $G/worktrees $G/w && echo moved
		echo 2 > file && git -c user.name=a -c user.email=a@b commit -q -am two && git log --format=%s | head -1`)
	if out.stdout != "two\n" {
		t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
	}
	if got := git(t, w.home+"/lw", "status", "--porcelain"); got != "" {
		t.Errorf("status on the host: %q", got)
	}
	for _, name := range names(t, main) {
		if base := filepath.Base(name); !slices.Contains(before, name) && slices.Contains(closedGit, base) {
			t.Errorf("%s is left", name)
		}
	}
}

// While a run is on, and after a launcher was killed, the host's git works as before.
// The next run of the folder removes what the killed one has left.
func TestPlaceholdersOfAKilledLauncher(t *testing.T) {
	w, _ := gitWorld(t)
	before, status := names(t, w.tree), git(t, w.tree, "status", "--porcelain")
	cmd := exec.Command(must1(os.Executable())(t), placeCommand, w.tree)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if line != "placed\n" {
		t.Fatalf("the launcher said %q", line)
	}
	if read(t, w.tree+"/.git/commondir") != ".\n" {
		t.Error("no placeholder was left; this test shows nothing")
	}
	for _, args := range [][]string{
		{"status", "--porcelain"},
		{"add", "-A", "--", ".", ":!a", ":!linked"},
		{"commit", "-q", "--allow-empty", "-m", "x"},
		{"log", "-1"},
		{"worktree", "list"},
		{"fsck"},
		{"gc", "-q"},
		{"submodule", "status"},
		{"config", "core.x", "y"},
		{"config", "--unset", "core.x"},
		{"branch", "b"},
		{"fetch", "-q", w.home + "/other"},
	} {
		git(t, w.tree, args...)
	}
	if got := git(t, w.tree, "status", "--porcelain"); got != status {
		t.Errorf("status: %q, want %q", got, status)
	}
	script(t, w.unguarded(), "git log -1 >/dev/null; echo x 2>/dev/null > .git/commondir && echo written")
	for _, name := range names(t, w.tree) {
		if !slices.Contains(before, name) && (slices.Contains(closedGit, filepath.Base(name)) || strings.Contains(name, "postern")) {
			t.Errorf("%s is left", name)
		}
	}
	if _, err := os.Lstat(w.tree + "/.git/commondir"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("commondir is left")
	}
}

func must1[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		must(tb, err)
		return v
	}
}

// Two runs in one folder: the one that ends first does not take the other's mounts
// away, and the last one clears up.
func TestPlaceholdersAreShared(t *testing.T) {
	needBwrap(t)
	w, _ := gitWorld(t)
	before := names(t, w.tree)
	start := func() (*Process, *os.File) {
		out := capture(t)
		p, err := Start(t.Context(), gather(t, w.profile()), Options{Stdin: devNull(t), Stdout: out, Stderr: capture(t)})
		must(t, err)
		t.Cleanup(func() {
			if p != nil {
				p.Kill()
			}
		})
		return p, out
	}
	first, _ := start()
	second, out := start()
	first.Close()
	must(t, second.Exec(Command{Argv: []string{"/bin/sh", "-c", "echo evil > .git/commondir || echo refused; mkdir .git/hooks || echo refused; echo evil > .git/hooks/x || echo refused"}, Env: []string{"PATH=/usr/bin:/bin"}}))
	if _, err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := slurp(t, out); got != "refused\nrefused\nrefused\n" {
		t.Errorf("got %q", got)
	}
	sameNames(t, before, names(t, w.tree))
	if changes := second.Facts().Inspect(); len(changes) != 0 {
		t.Errorf("changes: %v", changes)
	}
}

// What the user makes while a run is on is the user's, and stays.
func TestPlaceholdersGiveWay(t *testing.T) {
	w, _ := gitWorld(t)
	f := gather(t, w.unguarded())
	p, err := f.place()
	must(t, err)
	must(t, os.Remove(w.tree+"/.git/info/attributes"))
	write(t, w.tree+"/.git/info/attributes", "* text\n")
	write(t, w.tree+"/.git/hooks/pre-commit", "#!/bin/sh\n")
	p.remove()
	if read(t, w.tree+"/.git/info/attributes") != "* text\n" || read(t, w.tree+"/.git/hooks/pre-commit") != "#!/bin/sh\n" {
		t.Error("a file of the user's changed")
	}
	if got := len(f.Inspect()); got != 2 {
		t.Errorf("%d changes, want 2: %v", got, f.Inspect())
	}
}

// A repository that is a fixture of the repository around it: no placeholder in it may
// be added there.
func TestBareRepositoryInAWorktree(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	git(t, w.tree, "init", "-q", "--template=", "--bare", "testdata/repo.git")
	write(t, w.tree+"/testdata/repo.git/refs/keep", "")
	write(t, w.tree+"/testdata/repo.git/objects/keep", "")
	git(t, w.tree, "add", "-A")
	git(t, w.tree, "commit", "-q", "-m", "fixture")
	out := script(t, w.profile(), "git add -A && git status --porcelain; echo x 2>/dev/null > testdata/repo.git/commondir && echo written; git -C testdata/repo.git rev-parse --is-bare-repository")
	if out.stdout != "true\n" || !strings.Contains(strings.Join(out.facts.Warnings, "\n"), "repo.git") {
		t.Errorf("got %q; stderr %s; warnings %q", out.stdout, out.stderr, out.facts.Warnings)
	}
	t.Run("the layout with worktrees around a hidden bare one is live", func(t *testing.T) {
		w := newWorld(t)
		repository(t, w.sibling)
		git(t, w.home, "clone", "-q", "--bare", w.sibling, w.tree+"/.bare")
		write(t, w.tree+"/.git", "gitdir: ./.bare\n")
		out := script(t, w.profile(), "git worktree add -q -b new wt && cd wt && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m two && git log -1 --format=%s; echo x 2>/dev/null > ../.bare/commondir && echo written; true")
		if out.stdout != "two\n" {
			t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
		}
	})
}

// New git directories are judged by what they say, wherever they lie.
func TestNewGitDirectoriesAreJudged(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	repository(t, w.tree+"/old")
	out := script(t, w.profile(), `set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
		git init -q docs; printf '[core]\n\tfsmonitor=/evil\n' >> docs/.git/config
		git init -q --bare tools; printf '[core]\n\tbare=false\n\tworktree=../tools\n\tfsmonitor=/evil\n' > tools/config
		git init -q a/b/c/d/deep; echo x > a/b/c/d/deep/.git/hooks/post-checkout
		mkdir -p node_modules/.x; git init -q node_modules/.x/y; printf '[alias]\n\tst=!x\n' >> node_modules/.x/y/.git/config; mkdir lib; echo 'gitdir: ../node_modules/.x/y/.git' > lib/.git
		git init -q red; echo ../../old/.git > red/.git/commondir
		git -C old config --file /tmp/x a.b c
		git init -q good/plain; git clone -q . good/clone; git -C good/clone remote add up https://example.com/x.git; git -C good/clone switch -q -c topic --track origin/main
		git worktree add -q good/wt; git init -q --bare good/bare.git
		git -C good/clone commit -q --allow-empty -m x; GIT_SEQUENCE_EDITOR='echo "exec evil" >' git -C good/clone rebase -q -i HEAD~1 || true
		mkdir -p good/clone/.git/rebase-merge; echo 'exec evil' > good/clone/.git/rebase-merge/git-rebase-todo`)
	if out.status.ExitCode() != 0 {
		t.Fatalf("status %d: %s", out.status.ExitCode(), out.stderr)
	}
	var got []string
	for _, c := range out.facts.Inspect() {
		rel, _ := filepath.Rel(w.tree, c.Path)
		got = append(got, rel)
	}
	slices.Sort(got)
	want := []string{"a/b/c/d/deep/.git/hooks", "docs/.git/config", "good/clone/.git/rebase-merge/git-rebase-todo", "lib/.git", "red/.git/commondir", "tools/config"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// What git runs is named by its configuration: hooks kept in the worktree, includes,
// filters.
func TestWhatTheConfigurationNames(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	for name, text := range map[string]string{
		".husky/pre-commit": "#!/bin/sh\n", ".gitshared": "[include]\n\tpath = more/conf\n", "more/conf": "", "tools/clean.sh": "", "tools/other.sh": "", "monitor": "",
	} {
		write(t, filepath.Join(w.tree, name), text)
	}
	for key, value := range map[string]string{
		"core.hooksPath": ".husky", "include.path": "../.gitshared", "filter.x.clean": "sh ./tools/clean.sh %f", "core.fsmonitor": w.tree + "/monitor", "alias.x": "!f() { ./none; }; f",
	} {
		git(t, w.tree, "config", key, value)
	}
	out := script(t, w.profile(), `for f in .husky/pre-commit .husky/post-checkout .gitshared more/conf tools/clean.sh monitor; do echo evil > $f && echo "$f written"; done 2>/dev/null; echo x > tools/other.sh && echo other; mv tools t 2>/dev/null && echo moved; true`)
	if out.stdout != "other\n" {
		t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
	}
	write(t, w.tree+"/none", "evil") // what the alias runs
	changes := out.facts.Inspect()
	if len(changes) != 1 || changes[0].Path != w.tree+"/none" {
		t.Errorf("changes %v", changes)
	}
}

// The launch stays cheap: what is looked for and mounted in a usual repository.
func BenchmarkGather(b *testing.B) {
	w := newWorld(b)
	repository(b, w.tree)
	for i := range 300 {
		write(b, fmt.Sprintf("%s/p%02d/q%d/f.go", w.tree, i%20, i), "")
	}
	for b.Loop() {
		if _, err := Gather(w.profile()); err != nil {
			b.Fatal(err)
		}
	}
}

// A whole run of true, beside bare bubblewrap with the same isolation.
func BenchmarkRun(b *testing.B) {
	needBwrap(b)
	w := newWorld(b)
	repository(b, w.tree)
	b.Run("postern", func(b *testing.B) {
		for b.Loop() {
			f, err := Gather(w.profile())
			must(b, err)
			p, err := Start(context.Background(), f, Options{Stdin: devNull(b)})
			must(b, err)
			must(b, p.Exec(Command{Argv: []string{"/bin/true"}}))
			_, err = p.Wait()
			must(b, err)
		}
	})
	b.Run("bwrap", func(b *testing.B) {
		for b.Loop() {
			must(b, exec.Command("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
				"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", w.tree, w.tree, "--", "/bin/true").Run())
		}
	})
}
