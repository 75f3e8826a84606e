package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scenario is one report about sandboxes of this kind, done again through the launcher:
// what the command of a user or an agent does, and what must come of it.
type scenario struct {
	name   string // begins with its number in the list of reports
	prep   func(*stage)
	flags  []string // $HOME and $TREE are replaced
	script string
	want   string // stdout; $HOME and $TREE are replaced
	code   int
	says   string // is in stderr
	check  func(*stage, result)
}

// stage is where a scenario plays: a home, in it a folder tree, and the appliance.
type stage struct {
	*world
	tb testing.TB
}

func (s *stage) expand(text string) string {
	return strings.NewReplacer("$HOME", s.home, "$TREE", s.tree).Replace(text)
}

// git runs the user's git, on the host, in a folder of the home.
func (s *stage) git(dir string, args ...string) string {
	s.tb.Helper()
	cmd := exec.Command("git", append([]string{"-c", "protocol.file.allow=always", "-c", "safe.directory=*"}, args...)...)
	cmd.Dir = filepath.Join(s.home, dir)
	cmd.Env = slices.Concat(s.env, []string{"GIT_CONFIG_NOSYSTEM=1"})
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.tb.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// repository makes one in a folder of the home, with a file in one commit.
func (s *stage) repository(dir string) {
	s.tb.Helper()
	s.write(".gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.com\n", 0o644)
	s.git("", "init", "-q", "-b", "main", dir)
	s.write(dir+"/file", "one\n", 0o644)
	s.git(dir, "add", "file")
	s.git(dir, "commit", "-q", "-m", "one")
}

func (s *stage) link(target, name string) {
	s.tb.Helper()
	path := filepath.Join(s.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(s.expand(target), path)); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *stage) read(name string) string {
	s.tb.Helper()
	return readFile(s.tb, filepath.Join(s.home, name))
}

func (s *stage) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.home, name))
	return !errors.Is(err, fs.ErrNotExist)
}

// names lists the folder tree, git's objects and the like left out.
func (s *stage) names() []string {
	s.tb.Helper()
	var out []string
	err := filepath.WalkDir(s.tree, func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() && slices.Contains([]string{"objects", "logs", "refs"}, e.Name()) {
			return fs.SkipDir
		}
		out = append(out, strings.TrimPrefix(path, s.tree))
		return err
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	return out
}

// TestScenario plays every one; TestAsNobody plays them again without rights.
func TestScenario(t *testing.T) {
	needBwrap(t)
	for _, sc := range slices.Concat(gitScenarios(), linkScenarios(), fileScenarios(), processScenarios()) {
		t.Run(sc.name, func(t *testing.T) {
			s := &stage{newWorld(t), t}
			newAppliance(t, s.runs)
			if sc.prep != nil {
				sc.prep(s)
			}
			var flags []string
			for _, flag := range sc.flags {
				flags = append(flags, s.expand(flag))
			}
			got := s.script(s.expand(sc.script), flags...)
			if want := s.expand(sc.want); got.stdout != want || got.code != sc.code || !strings.Contains(got.stderr, s.expand(sc.says)) {
				t.Errorf("status %d, stdout %.600q, stderr %.1200q\nwant %d, %q, and %q in stderr", got.code, got.stdout, got.stderr, sc.code, want, sc.says)
			}
			if sc.check != nil {
				sc.check(s, got)
			}
		})
	}
}

// clean demands that the user's git finds nothing changed, and nothing new.
func clean(s *stage, _ result) {
	s.tb.Helper()
	if got := s.git("tree", "status", "--porcelain", "--ignored"); got != "" {
		s.tb.Errorf("git status afterwards:\n%s", got)
	}
}
