package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tree makes files, directories (trailing slash) and symlinks (a -> b) below a
// temporary directory, whose path has no symlinks.
func tree(tb testing.TB, entries ...string) string {
	tb.Helper()
	base := tempDir(tb)
	for _, e := range entries {
		name, target, isLink := strings.Cut(e, " -> ")
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		var err error
		switch {
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(name+"\n"), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return base
}

func gather(tb testing.TB, p *Profile) *Facts {
	tb.Helper()
	f, err := Gather(p)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// deniedIn lists what is there and denied in f, relative to base.
func deniedIn(f *Facts, base string, kind DenialKind) []string {
	return listed(f, base, func(d Denial) bool { return d.Kind == kind && d.ID != FileID{} })
}

// reservedIn lists the names that f forbids to make.
func reservedIn(f *Facts, base string) []string {
	return listed(f, base, func(d Denial) bool { return d.Kind == Protect && d.ID == FileID{} })
}

func listed(f *Facts, base string, which func(Denial) bool) []string {
	var out []string
	for _, d := range f.Denials {
		if which(d) {
			if rel, err := filepath.Rel(base, d.Path); err == nil {
				out = append(out, rel)
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestProtectedNames(t *testing.T) {
	for _, tc := range []struct {
		name    string
		entries []string
		want    []string
	}{
		{"nothing", []string{"main.go", "src/x.go"}, nil},
		{"a repository", []string{".git/HEAD", ".git/config", ".git/hooks/pre-commit.sample", ".git/objects/", ".git/refs/", "f"}, []string{".git/config", ".git/hooks"}},
		{
			"what redirects hooks and configuration",
			[]string{".git/config", ".git/commondir", ".git/config.worktree", ".git/info/attributes", ".git/info/exclude"},
			[]string{".git/commondir", ".git/config", ".git/config.worktree", ".git/info/attributes"},
		},
		{
			"submodules and linked worktrees",
			[]string{".git/modules/a/HEAD", ".git/modules/a/objects/", ".git/modules/a/refs/", ".git/modules/a/config", ".git/modules/a/hooks/", ".git/modules/d/e/HEAD", ".git/modules/d/e/objects/", ".git/modules/d/e/refs/", ".git/modules/d/e/config", ".git/worktrees/w/HEAD", ".git/worktrees/w/commondir", ".git/worktrees/w/gitdir", ".git/worktrees/w/config.worktree"},
			[]string{".git/modules/a/config", ".git/modules/a/hooks", ".git/modules/d/e/config", ".git/worktrees/w/commondir", ".git/worktrees/w/config.worktree", ".git/worktrees/w/gitdir"},
		},
		{
			"a bare layout, and a repository far below",
			[]string{"hub/HEAD", "hub/objects/", "hub/refs/", "hub/config", "hub/hooks/x", "a/b/c/d/e/.git/config", "a/b/c/d/e/.npmrc"},
			[]string{"a/b/c/d/e/.git/config", "hub/config", "hub/hooks"},
		},
		{"where it only looks like one", []string{"x/HEAD", "x/objects/", "x/config", "y/HEAD", "y/refs/", "y/hooks/z"}, nil},
		{"a .git file", []string{".git", "sub/.git"}, []string{".git", "sub/.git"}},
		{"a repository inside", []string{"a/b/.git/config", "a/b/.git/hooks/x"}, []string{"a/b/.git/config", "a/b/.git/hooks"}},
		{
			"every name of the list",
			[]string{
				".gitconfig", ".gitmodules", ".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".ripgreprc", ".mcp.json", ".npmrc",
				".netrc", ".git-credentials", ".env", ".env.local", ".envrc", ".vscode/tasks.json", ".idea/x", ".ssh/id", ".aws/x", ".kube/x", ".docker/x",
				".claude/commands/x", ".claude/agents/x", ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/x", ".claude/sessions/x",
			},
			[]string{
				".aws", ".bash_profile", ".bashrc", ".claude/agents", ".claude/commands", ".claude/hooks", ".claude/settings.json", ".claude/settings.local.json",
				".docker", ".env", ".env.local", ".envrc", ".git-credentials", ".gitconfig", ".gitmodules", ".idea", ".kube", ".mcp.json", ".netrc", ".npmrc",
				".profile", ".ripgreprc", ".ssh", ".vscode", ".zprofile", ".zshrc",
			},
		},
		{"in another case", []string{".ENV", ".VSCode/x", ".Bashrc"}, []string{".Bashrc", ".ENV", ".VSCode"}},
		{"three levels down, and no further", []string{"a/b/.npmrc", "a/b/c/.npmrc"}, []string{"a/b/.npmrc"}},
		{"not in unpacked packages", []string{"node_modules/p/.npmrc", "node_modules/.env"}, nil},
		{"a Python environment is not a secret", []string{".env/bin/python"}, nil},
		{"names that only begin alike", []string{".gitignore", ".bashrc.d/x", "env", ".vscode-test/x"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := tree(t, append(tc.entries, "seen/")...)
			f := gather(t, &Profile{Binds: []Bind{{Path: base}}, Home: "/home/u"})
			if got := deniedIn(f, base, Protect); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestReadOnlyRootsNeedNoNames(t *testing.T) {
	base := tree(t, ".git/config", ".npmrc")
	for _, p := range []*Profile{
		{Binds: []Bind{{Path: base, ReadOnly: true}}, Home: "/home/u"},
		{Binds: []Bind{{Path: base}}, Mode: ModeReview, Home: "/home/u"},
		{Binds: []Bind{{Path: base}}, Mode: ModePlan, Home: "/home/u"},
		{Binds: []Bind{{Path: base}}, Mode: ModeOrchestrate, Home: "/home/u"},
	} {
		f := gather(t, p)
		if f.Roots[0].Writable {
			t.Errorf("mode %q, read-only %t: writable", p.Mode, p.Binds[0].ReadOnly)
		}
		if got := deniedIn(f, base, Protect); got != nil {
			t.Errorf("protected %q", got)
		}
	}
}

func TestStateDirs(t *testing.T) {
	base := tree(t, "w/f", "state/settings.json", "state/settings.local.json", "state/hooks/x", "state/projects/x", "state/.env")
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}}, StateDirs: []string{base + "/state"}, Mode: ModePlan, Home: "/home/u"})
	for _, r := range f.Roots {
		if want := r.Path == base+"/state"; r.Writable != want {
			t.Errorf("%s: writable %t", r.Path, r.Writable)
		}
	}
	if got, want := deniedIn(f, base, Protect), []string{"state/hooks", "state/settings.json", "state/settings.local.json"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProtectedAndHiddenPaths(t *testing.T) {
	base := tree(t, "w/keep/x", "w/secret/x", "w/file", "real/x", "w/link -> ../real", "w/gone -> ../nowhere")
	f := gather(t, &Profile{
		Binds:     []Bind{{Path: base + "/w"}},
		Protected: []string{base + "/w/keep", base + "/w/missing", base + "/w/link", base + "/w/gone", base + "/w/../w/file"},
		Hidden:    []string{base + "/w/secret", base + "/w/not-there"},
		Home:      "/home/u",
	})
	if got, want := deniedIn(f, base, Protect), []string{"real", "w/file", "w/keep"}; !slices.Equal(got, want) {
		t.Errorf("protected %q, want %q", got, want)
	}
	if got, want := deniedIn(f, base, Hide), []string{"w/secret"}; !slices.Equal(got, want) {
		t.Errorf("hidden %q, want %q", got, want)
	}
	if want := []Watch{{base + "/w/link", "../real"}, {base + "/w/gone", "../nowhere"}}; !slices.Equal(f.Watches, want) {
		t.Errorf("watched %q, want %q", f.Watches, want)
	}
}

// Symlinked rc files, as stow and nix make them: dangling, absolute, relative.
func TestSymlinkedNames(t *testing.T) {
	base := tree(t, "w/dotfiles/bashrc", "w/.bashrc -> dotfiles/bashrc", "w/.zshrc -> /nix/store/none", "w/tracked/x", "w/.git/config", "w/.git/hooks -> ../tracked", "out/vs/x")
	if err := os.Symlink(base+"/out/vs", base+"/w/.vscode"); err != nil {
		t.Fatal(err)
	}
	write(t, base+"/w/.git/config", "")
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}}, Home: "/home/u"})
	if got, want := deniedIn(f, base, Protect), []string{"out/vs", "w/.git/config", "w/dotfiles/bashrc", "w/tracked"}; !slices.Equal(got, want) {
		t.Errorf("protected %q, want %q", got, want)
	}
	if len(f.Watches) != 4 || len(f.Warnings) != 4 {
		t.Errorf("watches %q\nwarnings %q", f.Watches, f.Warnings)
	}
}

func TestSocketsAreHidden(t *testing.T) {
	base := tree(t, "w/.git/config", "w/f")
	// A short way to it: socket paths are bounded.
	t.Chdir(filepath.Join(base, "w"))
	for _, path := range []string{"agent.sock", ".git/fsmonitor--daemon.ipc"} {
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
	}
	want := []string{"w/.git/fsmonitor--daemon.ipc", "w/agent.sock"}
	for _, mode := range []Mode{ModeChat, ModeReview} {
		f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}}, Mode: mode, Home: "/home/u"})
		if got := deniedIn(f, base, Hide); !slices.Equal(got, want) {
			t.Errorf("mode %s: hidden %q, want %q", mode, got, want)
		}
	}
}

func TestBindsThatAreRefused(t *testing.T) {
	base := tree(t, "home/u/w/x", "home/u/.config/x", "run/lease.sock", "link -> home/u")
	home, run := base+"/home/u", base+"/run"
	for _, tc := range []struct {
		path string
		why  string
	}{
		{home, "whole home"},
		{base + "/home", "whole home"},
		{base + "/link", "whole home"},
		{"/", "whole"},
		{"/tmp", "/tmp"},
		{"/run", "/run"},
		{"/var", "/var"},
		{"/proc", "/proc"},
		{"/sys", "/sys"},
		{"/dev", "/dev"},
		{"/dev/null", ""},
		{"/proc/self", "/proc"},
		{"/dev/pts", "/dev"},
		{"/usr", "/usr"},
		{"/etc", "/etc"},
		{run, "run directory"},
		{base + "/run/lease.sock", "run directory"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			_, err := Gather(&Profile{Binds: []Bind{{Path: tc.path}}, Home: home, RunDir: run})
			var r *Refusal
			if !errors.As(err, &r) || r.Reason != ReasonBind && r.Reason != ReasonBindGone {
				t.Fatalf("got %v, want a refusal", err)
			}
			if !strings.Contains(err.Error(), tc.why) {
				t.Errorf("%v does not say %q", err, tc.why)
			}
		})
	}
	for _, path := range []string{home + "/w", home + "/.config"} {
		if _, err := Gather(&Profile{Binds: []Bind{{Path: path}}, Home: home, RunDir: run}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestRefusedProfiles(t *testing.T) {
	base := tree(t, "w/f", "v/")
	for _, tc := range []struct {
		name string
		p    Profile
		want Reason
		says string
	}{
		{"name globs beside another sandbox (SPEC 26)", Profile{Binds: []Bind{{Path: base}}, NameGlobs: rulesOf("**/.env", "**/*.pem"), NestedSandbox: true}, ReasonNameGlobs, "**/.env **/*.pem"},
		{"a name glob that says nothing", Profile{Binds: []Bind{{Path: base}}, NameGlobs: rulesOf("**/")}, ReasonGlob, "**/"},
		{"a folder that is not there", Profile{Binds: []Bind{{Path: base + "/none"}}}, ReasonBindGone, "/none"},
		{"a directory outside", Profile{Binds: []Bind{{Path: base + "/w"}}, Dir: base + "/v"}, ReasonDir, "--bind"},
		{"a directory that is a file", Profile{Binds: []Bind{{Path: base + "/w"}}, Dir: base + "/w/f"}, ReasonDir, "not a folder"},
		{"a directory that is hidden", Profile{Binds: []Bind{{Path: base}}, Dir: base + "/w", Hidden: []string{base + "/w"}}, ReasonDir, "hidden"},
		{"only a file to work in", Profile{Binds: []Bind{{Path: base + "/w/f"}}}, ReasonDir, "not a folder"},
		{"no folder", Profile{}, "", "no folder"},
		{"an unknown mode", Profile{Binds: []Bind{{Path: base}}, Mode: "chatty"}, "", "chatty"},
		{"a relative bind", Profile{Binds: []Bind{{Path: "w"}}}, "", `"w"`},
		{"a relative protected path", Profile{Binds: []Bind{{Path: base}}, Protected: []string{"x"}}, "", `"x"`},
		{"a relative hidden path", Profile{Binds: []Bind{{Path: base}}, Hidden: []string{"x"}}, "", `"x"`},
		{"a relative state directory", Profile{Binds: []Bind{{Path: base}}, StateDirs: []string{"x"}}, "", `"x"`},
		{"a zero byte", Profile{Binds: []Bind{{Path: "/a\x00b"}}}, "", "absolute"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := Gather(&tc.p)
			if err == nil {
				t.Fatalf("taken: %+v", f)
			}
			if tc.want != "" {
				refusal(t, err, tc.want)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v does not say %q", err, tc.says)
			}
		})
	}
}

// A folder of one's own that cannot be read is hidden: what is in it is not known. An
// earlier run may have made it, and must not keep later ones from starting.
func TestUnreadableFolders(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	base := tree(t, "w/closed/.npmrc", "w/r/.git/HEAD", "w/z/.git/HEAD", "w/f")
	for path, mode := range map[string]os.FileMode{"w/closed": 0, "w/r/.git": 0o400, "w/z/.git": 0} {
		if err := os.Chmod(filepath.Join(base, path), mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(base, path), 0o700) })
	}
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}}, Home: "/home/u"})
	if got, want := deniedIn(f, base, Hide), []string{"w/closed", "w/r/.git", "w/z/.git"}; !slices.Equal(got, want) || len(f.Warnings) != 3 || len(f.gits) != 0 {
		t.Errorf("hidden %q, want %q; warnings %q, git directories %q", got, want, f.Warnings, f.gits)
	}
	_, err := Gather(&Profile{Binds: []Bind{{Path: base + "/w/closed"}}, Home: "/home/u"})
	refusal(t, err, ReasonBind)
}

// What a run may have planted does not take the folder away from the next one.
func TestLinksToTheFolderItself(t *testing.T) {
	base := tree(t, "w/.env.loop -> .", "w/sub/.vscode -> ..", "w/.env.dir -> sub", "w/.idea -> /", "w/src/.npmrc -> ../real", "w/real")
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}, {Path: base + "/w/src"}}, Home: "/home/u"})
	if got, want := deniedIn(f, base, Protect), []string{"w/real"}; !slices.Equal(got, want) {
		t.Errorf("protected %q, want %q", got, want)
	}
	if len(f.Watches) < 5 || !f.Roots[0].Writable || !granted(f)[0].Writable {
		t.Errorf("watches %q, roots %+v", f.Watches, granted(f))
	}
}

func TestLinksToFolders(t *testing.T) {
	base := tree(t, "data/proj/f", "short -> data", "home/p -> ../short/proj")
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/home/p"}}, Home: "/home/u"})
	if f.Roots[0].Path != base+"/data/proj" || f.Dir != base+"/data/proj" {
		t.Errorf("root %s, start in %s", f.Roots[0].Path, f.Dir)
	}
	for _, want := range []Link{{base + "/home/p", "../short/proj"}, {base + "/short", "data"}} {
		if !slices.Contains(f.Links, want) {
			t.Errorf("no link %v in %v", want, f.Links)
		}
	}
}

func TestSameFolderTwice(t *testing.T) {
	base := tree(t, "w/f")
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}, {Path: base + "/./w", ReadOnly: true}}, Home: "/home/u"})
	if len(f.Roots) != 1 || f.Roots[0].Writable {
		t.Errorf("roots %+v, want one that cannot be written", f.Roots)
	}
}

func TestInnerHome(t *testing.T) {
	for _, tc := range []struct{ home, want string }{
		{"/home/u", "/home/u"},
		{"/home/u/", "/home/u"},
		{"/root", "/root"},
		{"/tmp/x", "/tmp/x"},
		{"/var/lib/ci", "/var/lib/ci"},
		{"", FallbackHome},
		{"/", FallbackHome},
		{"rel", FallbackHome},
		{"/usr/lib/x", FallbackHome},
		{"/etc", FallbackHome},
		{"/tmp", FallbackHome},
		{"/var", FallbackHome},
		{"/dev/shm/x", FallbackHome},
		{"/run/user/1", FallbackHome},
	} {
		if got := innerHome(tc.home); got != tc.want {
			t.Errorf("home %q is %q inside, want %q", tc.home, got, tc.want)
		}
	}
}

func TestParseBind(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Bind
	}{
		{"/a", Bind{Path: "/a"}},
		{"/a:ro", Bind{Path: "/a", ReadOnly: true}},
		{"/a:rw", Bind{Path: "/a"}},
		{"/a:b", Bind{Path: "/a:b"}},
		{"/a:ro:ro", Bind{Path: "/a:ro", ReadOnly: true}},
		{"rel:ro", Bind{Path: "rel", ReadOnly: true}},
	} {
		if got, err := ParseBind(tc.text); err != nil || got != tc.want {
			t.Errorf("ParseBind(%q) = %v, %v; want %v", tc.text, got, err, tc.want)
		}
	}
	for _, text := range []string{"", ":ro", ":rw"} {
		if got, err := ParseBind(text); err == nil {
			t.Errorf("ParseBind(%q) = %v", text, got)
		}
	}
}

func TestParseMode(t *testing.T) {
	for _, m := range Modes() {
		if got, err := ParseMode(string(m)); err != nil || got != m {
			t.Errorf("ParseMode(%q) = %q, %v", m, got, err)
		}
		if m.Writes() != (m == ModeChat) {
			t.Errorf("mode %s writes: %t", m, m.Writes())
		}
	}
	if got, err := ParseMode(""); err != nil || got != ModeChat {
		t.Errorf("the empty mode is %q, %v", got, err)
	}
	for _, text := range []string{"Chat", "auto", "chat ", "none"} {
		if got, err := ParseMode(text); err == nil {
			t.Errorf("ParseMode(%q) = %q", text, got)
		}
	}
}

// A pipe where a file is expected must not make anybody wait for a writer.
func TestPipesAreNotReadFrom(t *testing.T) {
	base := tree(t, "w/x/HEAD", "w/x/objects/", "w/x/refs/", "w/x/rebase-merge/")
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}}, Home: "/home/u"})
	for _, path := range []string{"w/.git", "w/x/commondir", "w/x/config", "w/x/rebase-merge/git-rebase-todo"} {
		if err := syscall.Mkfifo(filepath.Join(base, path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan []Change)
	go func() { done <- f.Inspect() }()
	select {
	case changes := <-done:
		if len(changes) != 3 {
			t.Errorf("changes %v", changes)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
	gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}}, Home: "/home/u"})
}

func TestInspect(t *testing.T) {
	base := tree(t, "w/.git/config", "w/.git/HEAD", "w/.npmrc", "w/rc", "w/.bashrc -> rc", "w/plain")
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}}, Home: "/home/u"})
	if got := f.Inspect(); got != nil {
		t.Fatalf("changes before anything changed: %v", got)
	}
	write(t, base+"/w/.git/hooks/pre-commit", "evil")
	write(t, base+"/w/.git/commondir", "/evil")
	write(t, base+"/w/sub/.git/config", "[core]\n\tbare = false")
	write(t, base+"/w/sub/.git/hooks/x.sample", "sample")
	write(t, base+"/w/plain", "changed")
	if err := errors.Join(os.Remove(base+"/w/.bashrc"), os.WriteFile(base+"/w/.bashrc", []byte("evil"), 0o600)); err != nil {
		t.Fatal(err)
	}
	// As an editor saves: a new file over the old one.
	write(t, base+"/w/tmp", "new")
	if err := os.Rename(base+"/w/tmp", base+"/w/.npmrc"); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, c := range f.Inspect() {
		rel, _ := filepath.Rel(base+"/w", c.Path)
		got[rel] = true
		if c.What == "" || c.Cure == "" {
			t.Errorf("%+v says too little", c)
		}
	}
	for _, want := range []string{".git/hooks", ".git/commondir", ".bashrc", ".npmrc"} {
		if !got[want] {
			t.Errorf("%s was not noticed: %v", want, got)
		}
	}
	for _, unwanted := range []string{"sub/.git/hooks", "sub/.git/config", "plain", ".git/config"} {
		if got[unwanted] {
			t.Errorf("%s was reported", unwanted)
		}
	}
}
