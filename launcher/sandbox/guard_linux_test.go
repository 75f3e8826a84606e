package sandbox

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"postern/launcher/nameguard"
)

// A run with patterns of names starts, works, and cannot make them, wherever and whatever
// they are; and nothing is left on the host.
func TestGuardedNames(t *testing.T) {
	for _, tc := range []struct{ script, said, refused, made string }{
		{"mkdir -p sub/dir; echo x > sub/dir/.env || echo no", "no\n", "sub/dir/.env **/.env spec", "sub"},
		{"echo x > a; mv a b.key || echo no", "no\n", "b.key *.key spec", "a"},
		{"mkdir d; ln -s /x d/.git || echo no", "no\n", "d/.git **/.git/hooks default", "d"},
		{"git init -q --template= -b x n; git -C n status -sb; mkdir n/.git/hooks || echo no", "## No commits yet on x\nno\n", "n/.git/hooks **/.git/hooks default", "n"},
		{"echo x > .git/hooks/pre-commit || echo no; echo x > .git/config.worktree || echo no; echo x > .git/commondir || echo no", "no\nno\nno\n", ".git/hooks/pre-commit D default, kept as it is\n.git/config.worktree D default, kept as it is\n.git/commondir D default, kept as it is", ""},
		{"echo y > file; git add file; git -c user.name=a -c user.email=a@b commit -qm two; git log --format=%s; git branch b; git checkout -q b; git gc -q; git status -s", "two\none\n", "", ""},
		{"mkdir -p .vscode || echo no; echo x > ~/.env && cat ~/.env; echo x > /tmp/.env; mv /tmp/.env $PWD/sub.env && cat sub.env", "no\nx\nx\n", ".vscode **/.vscode default", "sub.env"},
		{"umask 077; echo x > a; stat -c %a a; chmod +x a; stat -c %a a", "600\n700\n", "", "a"},
		{"mv .git x || echo no; ln -s / .git/commondir || echo no", "no\nno\n", ".git/commondir D default, kept as it is", ".git"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			repository(t, w.tree)
			p := w.profile()
			p.NameGlobs = []nameguard.Rule{{Text: "**/.env", Source: "spec"}, {Text: "**/.env.*", Source: "spec"}, {Text: "*.key", Source: "spec"}}
			var mu sync.Mutex
			var told []string
			out := violating(t, p, func(v nameguard.Violation) {
				mu.Lock()
				defer mu.Unlock()
				rule := v.Rule
				if strings.HasPrefix(rule, w.tree) {
					rule = "D"
				}
				told = append(told, strings.TrimPrefix(v.Target, w.tree+"/")+" "+rule+" "+v.Source)
			}, "/bin/sh", "-c", "exec 2>/dev/null; "+tc.script)
			if out.stdout != tc.said {
				t.Errorf("it said %q, want %q", out.stdout, tc.said)
			}
			if got := strings.Join(told, "\n"); got != tc.refused {
				t.Errorf("refused %q, want %q", got, tc.refused)
			}
			if tc.made != "" && !exists(w.tree+"/"+tc.made) {
				t.Errorf("%s is not there", tc.made)
			}
			for _, ghost := range []string{".git/commondir", ".git/config.worktree", ".git/objects/info/alternates", ".git/info/attributes"} {
				if exists(w.tree + "/" + ghost) {
					t.Errorf("%s was made on the host", ghost)
				}
			}
		})
	}
}

// A link cannot be a mount point: the rules keep it, and what it leads to as everywhere.
func TestGuardedLinks(t *testing.T) {
	w := newWorld(t)
	write(t, w.tree+"/real", "mine\n")
	must(t, os.Symlink("real", w.tree+"/link"))
	p := w.profile()
	p.NameGlobs, p.Protected = rulesOf("*.key"), []string{w.tree + "/link"}
	const tries = "exec 2>/dev/null; echo x > link || echo no; mv link x || echo no; ln -sfn /etc link || echo no; echo x > y; mv y link || echo no; cat link"
	if out := script(t, p, tries); out.stdout != "no\nno\nno\nno\nmine\n" {
		t.Errorf("%q", out.stdout)
	}
}

// In a free folder names are free, and nothing that was made there comes out with them.
func TestFreeFolders(t *testing.T) {
	w := newWorld(t)
	must(t, os.Mkdir(w.tree+"/free", 0o755))
	p := w.profile()
	p.NameGlobs, p.NameFree, p.NameSecrets = rulesOf("a.*"), []string{w.tree + "/free"}, true
	const tries = "exec 2>/dev/null; mkdir free/d; echo x > free/d/.env && cat free/d/.env; echo x > free/a.b && cat free/a.b; " +
		"echo x > .env || echo no; echo x > a.b || echo no; mv free/a.b . || echo no; ln free/d/.env . || echo no; mv free/d . || echo no; mv free elsewhere || echo no; mv free/d free/e && ls free"
	if out := script(t, p, tries); out.stdout != "x\nx\nno\nno\nno\nno\nno\nno\na.b\ne\n" {
		t.Errorf("%q", out.stdout)
	}
}

// Names are guarded in every folder, wherever the sandbox has something of its own.
func TestGuardedNamesElsewhere(t *testing.T) {
	for _, base := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp(base, "guarded") //nolint:usetesting // the place is what is tested
			if err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			w := newWorld(t)
			p := w.profile()
			p.NameGlobs = rulesOf("*.key", dir+"/settings")
			p.Binds = append(p.Binds, Bind{Path: dir})
			out, err := trySandboxed(t, p, "/bin/sh", "-c", `cd "$1"; exec 2>/dev/null; echo x > fine; echo x > a.key || echo no; echo x > settings || echo no; : > `+base+`/.x && echo x > /tmp/b.key && echo yes`, "sh", dir)
			if base == "/dev/shm" {
				if _, ok := errors.AsType[*Refusal](err); !ok {
					t.Errorf("it runs: %q, %v", out.stdout, err)
				}
				return
			}
			if err != nil || out.stdout != "no\nno\nyes\n" || !exists(dir+"/fine") || exists(dir+"/a.key") {
				t.Errorf("%q, %v", out.stdout, err)
			}
		})
	}
}

// Where names cannot be guarded nothing is started, and the reason is said (SPEC 26).
func TestGuardRefuses(t *testing.T) {
	w := newWorld(t)
	patterns := []nameguard.Rule{{Text: "**/.env", Source: "spec"}, {Text: "*.key", Source: "spec"}, {Text: "*.pem", Source: "--deny-name"}}
	const needs = "the run needs files to be unwritable by name: **/.env *.key (spec), *.pem (--deny-name), and "
	for _, tc := range []struct {
		change     func(*Profile)
		says, cure string
	}{
		{func(p *Profile) { p.NestedSandbox = true }, needs + "a sandbox of its own could show it the same files elsewhere", "do without --nested-sandbox, or drop these patterns"},
		{
			func(p *Profile) { p.NestedSandbox, p.NameGlobs, p.Guard = true, nil, GuardOn },
			"the run is to find names unwritable that tools outside act on, as .git/hooks, and a sandbox of its own could show it the same files elsewhere",
			"do without --nested-sandbox, or without --guard-names on",
		},
		{func(p *Profile) { p.Guard = GuardOff }, needs + "--guard-names off says that none are guarded", "drop these patterns, or do without --guard-names off (guard_names: off)"},
		{func(p *Profile) {
			write(t, w.tree+"/f", "")
			p.Binds = []Bind{{Path: w.tree, ReadOnly: true}, {Path: w.tree + "/f"}}
		}, needs + "it has no folder that it may write, only files", "show the folders that the files are in"},
	} {
		p := w.profile()
		p.NameGlobs = patterns
		tc.change(p)
		_, err := trySandboxed(t, p, "/usr/bin/touch", w.tree+"/started")
		refusal(t, err, ReasonNameGlobs)
		r, _ := errors.AsType[*Refusal](err)
		if r.Detail != tc.says || r.Cure != tc.cure || exists(w.tree+"/started") {
			t.Errorf("got  %s; %s\nwant %s; %s", r.Detail, r.Cure, tc.says, tc.cure)
		}
	}
	p := w.profile()
	p.NameGlobs = rulesOf("**/")
	_, err := trySandboxed(t, p, "/usr/bin/touch", w.tree+"/started")
	refusal(t, err, ReasonGlob)
	// Nothing can be written, so nothing has to be guarded.
	p.NameGlobs, p.Mode = rulesOf("**/.env"), ModeReview
	if out := script(t, p, "echo x > .env || echo no"); out.stdout != "no\n" {
		t.Errorf("%q", out.stdout)
	}
}

// A run that names no pattern is guarded where it can be: what tools act on is not made at the
// top, and in the git directories that are there nothing that redirects git. What an
// agent has to do it can.
func TestGuardedByDefault(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	out := script(t, w.profile(), `exec 2>/dev/null
for f in .bashrc .npmrc .vscode/x .claude/hooks/x .git/commondir .git/info/attributes .git/config.worktree; do mkdir -p $(dirname $f); echo x > $f && echo $f; done
mv .git .g && echo moved; ln -s / .git/hooks/l && echo linked
mkdir sub; echo x > sub/.npmrc && echo x > .claude/notes && echo x > a.key && echo x > .env && git init -q sub/r && git -C sub/r log; git worktree add -q wt && git -C wt log --format=%s`)
	if want := "one\n"; out.stdout != want {
		t.Errorf("it made %q, want %q", out.stdout, want)
	}
	for _, name := range []string{"sub/.npmrc", ".claude/notes", "a.key", ".env", "sub/r/.git/HEAD", "wt/.git"} {
		if !exists(w.tree + "/" + name) {
			t.Errorf("%s is not there", name)
		}
	}
}

// Each rule says where it stands: what would let a name be hangs on it.
func TestGuardSaysWhereARuleStands(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	for _, name := range []string{"mine", "secret", "found.pem", ".vscode/x"} {
		write(t, w.tree+"/"+name, "")
	}
	p := w.profile()
	p.Protected, p.Hidden, p.HiddenGlobs = []string{w.tree + "/mine"}, []string{w.tree + "/secret"}, []string{"**/*.pem"}
	told := map[string]string{}
	var mu sync.Mutex
	violating(t, p, func(v nameguard.Violation) {
		mu.Lock()
		defer mu.Unlock()
		told[strings.TrimPrefix(v.Target, w.tree+"/")] = v.Source
	}, "/bin/sh", "-c", "exec 2>/dev/null; for f in mine secret found.pem .vscode/y .git/commondir .npmrc; do echo x > $f; done; mkdir .claude .claude/hooks")
	want := map[string]string{
		"mine": nameguard.SourceProtected, "secret": nameguard.SourceHidden, "found.pem": nameguard.SourceHidden,
		".vscode/y": nameguard.SourceKept, ".git/commondir": nameguard.SourceKept, ".npmrc": nameguard.SourceGuard, ".claude/hooks": nameguard.SourceGuard,
	}
	if !maps.Equal(told, want) {
		t.Errorf("got %v, want %v", told, want)
	}
}

// Without a guard, and where there can be none, a run is as it was before there were guards;
// one that is to have it is refused, and so is one without that has patterns.
func TestGuardIsOptional(t *testing.T) {
	for _, tc := range []struct {
		guard   Guard
		change  func(p *Profile)
		guarded bool
		refused Reason
	}{
		{GuardAuto, func(*Profile) {}, true, ""},
		{"", func(*Profile) {}, true, ""},
		{GuardOn, func(*Profile) {}, true, ""},
		{GuardOff, func(*Profile) {}, false, ""},
		{GuardOff, func(p *Profile) { p.NameGlobs = rulesOf("*.key") }, false, ReasonNameGlobs},
		{GuardAuto, func(p *Profile) { p.NestedSandbox = true }, false, ""},
		{GuardOn, func(p *Profile) { p.NestedSandbox = true }, false, ReasonNameGlobs},
		{GuardOn, func(p *Profile) { p.Mode = ModeReview }, false, ""},
	} {
		w := newWorld(t)
		repository(t, w.tree)
		p := w.profile()
		p.Guard = tc.guard
		tc.change(p)
		f, err := Gather(p)
		if tc.refused != "" {
			refusal(t, err, tc.refused)
			continue
		}
		must(t, err)
		if (f.guard != nil) != tc.guarded {
			t.Errorf("%s: guarded: %v", tc.guard, f.guard != nil)
		}
		// Whatever keeps it, it is kept.
		if out := script(t, p, "echo evil > .git/commondir && cat .git/commondir || echo no"); !strings.HasSuffix(out.stdout, "no\n") {
			t.Errorf("%s: %q", tc.guard, out.stdout)
		}
	}
}

// A folder of a runner's state is told by its path, whatever it is called: no run is refused for
// that, and none of its neighbours is taken for it.
func TestGuardedStateFolders(t *testing.T) {
	for _, name := range []string{"state", "a[b]", "a{b}", "a*b", `a\b`, "a\nb"} {
		w := newWorld(t)
		p := w.profile()
		dir := filepath.Join(w.tree, name)
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.Mkdir(w.tree+"/axb", 0o755))
		p.StateDirs, p.Guard = []string{dir}, GuardOn
		p.Binds = []Bind{{Path: dir}, {Path: w.tree + "/axb"}}
		out := script(t, p, "exec 2>/dev/null; echo x > notes && echo notes; mkdir -p s; echo x > s/settings.json && echo settings; mkdir hooks && echo hooks; mkdir ../axb/hooks && echo neighbour")
		if out.stdout != "notes\nneighbour\n" {
			t.Errorf("%q: it made %q", name, out.stdout)
		}
	}
}

// PID 1 is neither filtered nor in Landlock's care. Nobody in the cage gets at it, nor at
// what it has.
func TestGuardedPID1(t *testing.T) {
	w := newWorld(t)
	p := w.profile()
	p.NameGlobs = rulesOf("*.key")
	attack := func(args ...string) string {
		return strings.TrimSpace(sandboxed(t, p, append([]string{InnerExe, attackCommand}, args...)...).stdout)
	}
	for want, args := range map[string][]string{
		"EPERM, ptrace": {"ptrace", "1"}, "EPERM, steal": {"steal"},
		"EACCES, mem": {"open", "/proc/1/mem"}, "EACCES, fd": {"open", "/proc/1/fd/3"}, "EACCES, root": {"open", "/proc/1/root" + w.tree + "/x.key"},
		"EPERM, userns": {"userns"}, "EPERM, mount": {"remount", w.tree}, "EPERM, umount": {"umount", w.tree},
	} {
		want, _, _ = strings.Cut(want, ",")
		if got := attack(args...); got != want && !strings.Contains(got, "operation not permitted") {
			t.Errorf("%v: %s, want %s", args, got, want)
		}
	}
	out := sandboxed(t, p, InnerExe, attackCommand, "fds")
	for line := range strings.Lines(out.stdout) {
		if n, to, ok := strings.Cut(strings.TrimSpace(line), " "); ok && n > "2" && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "anon_inode:[event") {
			t.Errorf("the command has %s", line)
		}
	}
}
