package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Thousands of denials: more than fit an argument list, and more mounts than bubblewrap
// could make one by one.
func TestManyDenials(t *testing.T) {
	w := newWorld(t)
	for i := range 4000 {
		write(t, fmt.Sprintf("%s/d%02d/k%d.pem", w.tree, i%40, i), "x")
	}
	for i := range 100 {
		write(t, fmt.Sprintf("%s/e%02d/.env", w.tree, i), "x\n")
		write(t, fmt.Sprintf("%s/e%02d/secrets.d/f", w.tree, i), "x\n")
	}
	write(t, w.tree+"/ro/f", "f\n")
	p := w.profile()
	p.HiddenGlobs = []string{"**/*.pem", "**/secrets.d"}
	p.Binds = append(p.Binds, Bind{Path: w.tree + "/ro", ReadOnly: true}, Bind{Path: w.tree + "/e00"})
	out := script(t, p, `cat d*/*.pem && echo read; for d in e*; do echo y > $d/.env && echo wrote; ls $d/secrets.d/f && echo saw; touch $d/secrets.d/new && echo made; mv $d x && echo moved; rm $d/.env && echo removed; done 2>/dev/null
		for f in d00/*; do echo y > $f && echo wrote; rm $f && echo removed; done 2>/dev/null
		cat e*/.env | sort -u; cat ro/f; touch ro/new 2>/dev/null || echo refused; touch d00/new e00/new && echo ok`)
	if out.stdout != "x\nf\nrefused\nok\n" {
		t.Errorf("got %.300q; stderr %.300s", out.stdout, out.stderr)
	}
	if n := len(out.facts.Denials); n != 4200 {
		t.Errorf("%d denials", n)
	}
	if changes := out.facts.Inspect(); len(changes) != 0 {
		t.Errorf("changes: %v", changes)
	}
}

func TestTooManyDenials(t *testing.T) {
	f := &Facts{}
	for i := range maxDenials + 1 {
		f.Denials = append(f.Denials, Denial{Path: fmt.Sprintf("/w/%d", i)})
	}
	refusal(t, f.addDenials(&Profile{}), ReasonTooMany)
}

// Three hundred linked worktrees, the names of each protected.
func TestManyWorktrees(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	head := strings.TrimSpace(git(t, w.tree, "rev-parse", "HEAD"))
	for i := range 300 {
		name := fmt.Sprintf("w%03d", i)
		at, admin := filepath.Join(w.home, "trees", name), filepath.Join(w.tree, ".git/worktrees", name)
		write(t, at+"/.git", "gitdir: "+admin+"\n")
		write(t, admin+"/gitdir", at+"/.git\n")
		write(t, admin+"/commondir", "../..\n")
		write(t, admin+"/HEAD", head+"\n")
	}
	p := w.profile()
	p.Binds = append(p.Binds, Bind{Path: w.home + "/trees"})
	out := script(t, p, `git worktree list | wc -l; cd ../trees/w299 && git reset -q && echo y >> file && git -c user.name=a -c user.email=a@b commit -q -am two && git log --format=%s | head -1
		for f in gitdir commondir config.worktree; do echo /evil > `+w.tree+`/.git/worktrees/w150/$f && echo wrote $f; done; echo x > ../w001/.git && echo wrote .git; mv ../w002/.git x && echo moved`)
	if out.stdout != "301\ntwo\n" && out.stdout != "301\n" {
		t.Errorf("got %q; stderr %.600s", out.stdout, out.stderr)
	}
}

// Where masks cannot be made, bubblewrap is given all of them.
func TestMaskStageFallsBack(t *testing.T) {
	run := func(all int, mask ...string) string {
		packed, err := pack(mask)
		must(t, err)
		fds := &files{}
		defer fds.close()
		n, err := fds.data(string(packed))
		must(t, err)
		cmd := exec.Command("/proc/self/exe")
		cmd.Path, err = os.Executable()
		must(t, err)
		cmd.Args = []string{"postern", InitCommand, maskStage, strconv.Itoa(n), strconv.Itoa(all), "/bin/echo", "--args", "7", "rest"}
		cmd.ExtraFiles = fds.list
		cmd.SysProcAttr = new(syscall.SysProcAttr)
		maskNamespace(cmd.SysProcAttr)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	dir := tempDir(t)
	write(t, dir+"/f", "")
	must(t, os.Mkdir(dir+"/d", 0o700))
	if got := run(9, string(OpRoBind), dir+"/f", dir+"/f", string(OpTmpfs), "", dir+"/d", string(OpTmpfs), "", dir); got != "--args 7 rest\n" {
		t.Errorf("got %q", got)
	}
	if got := run(9, string(OpRoBind), dir+"/none", dir+"/f"); got != "--args 9 rest\n" {
		t.Errorf("got %q", got)
	}
	if r := classify(run(0, string(OpRoBind), dir+"/none", dir+"/f")); r.Reason != ReasonTooMany {
		t.Errorf("got %v", r)
	}
}
