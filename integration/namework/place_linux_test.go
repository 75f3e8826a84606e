package namework

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/launcher/nameguard"
)

// place is where work is done: a home, and in it the folder of the run.
type place struct {
	base, home, tree, runs string
	env                    []string // of the work, inside and outside
	path                   string   // where the work finds its programs
	shown                  []string // further folders, as --bind takes them
	free                   []string // folders of the tree in which no rule holds
}

// searched is where most work finds its programs.
const searched = "/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin"

func newPlace(tb testing.TB) *place {
	tb.Helper()
	base, err := os.MkdirTemp("", "w") //nolint:usetesting // short, for the run directory holds a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// Go's module cache has folders that nobody may write.
		_ = exec.Command("chmod", "-R", "u+w", base).Run()
		_ = os.RemoveAll(base)
	})
	if base, err = filepath.EvalSymlinks(base); err != nil {
		tb.Fatal(err)
	}
	p := &place{base: base, home: filepath.Join(base, "home"), runs: filepath.Join(base, "r"), path: searched}
	p.tree = filepath.Join(p.home, "tree")
	p.make(tb, p.tree, filepath.Join(base, "empty"))
	if err := os.Mkdir(p.runs, 0o700); err != nil {
		tb.Fatal(err)
	}
	p.write(tb, filepath.Join(base, "gitconfig"), "[init]\n\ttemplateDir = "+base+"/empty\n[core]\n\thooksPath = "+base+"/empty\n")
	p.env = []string{
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_AUTHOR_DATE=@1700000000 +0000", "GIT_COMMITTER_DATE=@1700000000 +0000", "LC_ALL=C.UTF-8", "TZ=UTC",
	}
	return p
}

func (p *place) make(tb testing.TB, dirs ...string) {
	tb.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
}

func (p *place) write(tb testing.TB, path, text string) {
	tb.Helper()
	p.make(tb, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// said is how a command ended.
type said struct {
	out, err string
	code     int
}

func end(tb testing.TB, cmd *exec.Cmd) said {
	tb.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		tb.Fatal(err)
	}
	return said{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// outside runs a script in the tree as the user would, with what a run is told of hooks.
func (p *place) outside(tb testing.TB, script string) said {
	tb.Helper()
	cmd := exec.Command("/bin/sh", "-euc", script)
	cmd.Dir = p.tree
	cmd.Env = append(slices.Clone(p.env), "PATH="+p.path, "HOME="+p.home, "GIT_CONFIG_GLOBAL="+p.base+"/gitconfig", "CARGO_CARGO_NEW_VCS=none")
	return end(tb, cmd)
}

// inside runs it where names are guarded.
func (p *place) inside(tb testing.TB, script string) said {
	tb.Helper()
	args := []string{"run"}
	for _, rule := range nameguard.Secrets() {
		args = append(args, "--deny-name", rule.Text)
	}
	for _, dir := range p.free {
		args = append(args, "--free-dir", dir)
	}
	for _, dir := range append([]string{"."}, p.shown...) {
		args = append(args, "--bind", dir)
	}
	for _, v := range p.env {
		args = append(args, "--env", v)
	}
	return end(tb, p.launcher(tb, append(args, "--", "/bin/sh", "-euc", script)...))
}

// launcher is a call of it in the tree.
func (p *place) launcher(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command(postern(tb), args...)
	cmd.Dir = p.tree
	cmd.Env = []string{"PATH=" + p.path, "HOME=" + p.home, "POSTERN_RUN=" + p.runs, "LC_ALL=C.UTF-8", "TERM=dumb"}
	return cmd
}

// violations are the lines about calls that were refused.
func (s said) violations() (out []string) {
	for line := range strings.Lines(s.err) {
		if strings.Contains(line, "violation") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}
