package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"postern/caddy-modules/session/lease"
	"postern/launcher/nameguard"
	"postern/launcher/sandbox"
)

// parse reads a command line in an empty home.
func parse(t *testing.T, args ...string) (*request, error) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	var out bytes.Buffer
	return parseRun(args, &out)
}

func TestParseRun(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Run("nothing said", func(t *testing.T) {
		r, err := parse(t, "--", "cmd", "-x")
		if err != nil {
			t.Fatal(err)
		}
		if want := []sandbox.Bind{{Path: dir}}; !slices.Equal(r.Binds, want) || !slices.Equal(r.Argv, []string{"cmd", "-x"}) || !r.Network || r.Mode != sandbox.ModeChat {
			t.Errorf("got %+v", r)
		}
		if err := lease.ValidateID(r.ID); err != nil {
			t.Error(err)
		}
	})
	t.Run("what is to be protected must be there", func(t *testing.T) {
		for _, flag := range []string{"--protect", "--hide"} {
			if _, err := parse(t, flag, "nowhere", "--", "cmd"); err == nil || !strings.Contains(err.Error(), "nowhere") {
				t.Errorf("%s: %v", flag, err)
			}
		}
	})
	t.Run("folders", func(t *testing.T) {
		for _, name := range []string{"p", "h"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := parse(t, "--bind", "a", "--bind", "/b:ro", "--protect", "p", "--hide", "h", "--", "cmd")
		if err != nil {
			t.Fatal(err)
		}
		if want := []sandbox.Bind{{Path: dir + "/a"}, {Path: "/b", ReadOnly: true}}; !slices.Equal(r.Binds, want) {
			t.Errorf("binds %v", r.Binds)
		}
		if !slices.Equal(r.Protect, []string{dir + "/p"}) || !slices.Equal(r.Hide, []string{dir + "/h"}) {
			t.Errorf("protect %q, hide %q", r.Protect, r.Hide)
		}
		p := r.profile("/run/x")
		if p.Dir != "" || p.RunDir != "/run/x" || p.GitDir != "/run/x" {
			t.Errorf("profile %+v", p)
		}
	})
	t.Run("patterns", func(t *testing.T) {
		r, err := parse(t, "--hide", "**/*.pem", "--hide", "/a/?b", "--hide", "h", "--protect", "*.key", "--protect", "p", "--", "cmd")
		if err != nil {
			t.Fatal(err)
		}
		p := r.profile("/run/x")
		if !slices.Equal(p.HiddenGlobs, []string{"**/*.pem", "/a/?b"}) || !slices.Equal(p.NameGlobs, []nameguard.Rule{{Text: "*.key", Source: "--protect"}}) || !slices.Equal(p.Hidden, []string{dir + "/h"}) || p.Protected[0] != dir+"/p" {
			t.Errorf("profile %+v", p)
		}
	})
	t.Run("names", func(t *testing.T) {
		t.Setenv("POSTERN_DENY_NAME", "a.x b/c")
		t.Setenv("POSTERN_DENY_REMOVE", "on")
		r, err := parse(t, "--deny-name", "*.key", "--deny-name", "**/.git/hooks", "--free-dir", ".", "--", "cmd")
		if err != nil {
			t.Fatal(err)
		}
		p := r.profile("/run/x")
		want := []nameguard.Rule{
			{Text: "a.x", Source: "deny_name of POSTERN_DENY_NAME"},
			{Text: "b/c", Source: "deny_name of POSTERN_DENY_NAME"},
			{Text: "*.key", Source: "--deny-name"},
			{Text: "**/.git/hooks", Source: "--deny-name"},
		}
		if !slices.Equal(p.NameGlobs, want) || !slices.Equal(p.NameFree, []string{dir}) || !p.NameRemove {
			t.Errorf("profile %+v", p)
		}
	})
	t.Run("a guard", func(t *testing.T) {
		for _, tc := range []struct {
			env, flag string
			want      sandbox.Guard
		}{{"", "", sandbox.GuardAuto}, {"off", "", sandbox.GuardOff}, {"off", "on", sandbox.GuardOn}, {"on", "auto", sandbox.GuardAuto}} {
			t.Setenv("POSTERN_GUARD_NAMES", tc.env)
			args := []string{"--", "cmd"}
			if tc.flag != "" {
				args = append([]string{"--guard-names", tc.flag}, args...)
			}
			r, err := parse(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.profile("/run/x").Guard; got != tc.want {
				t.Errorf("%v: %q", tc, got)
			}
		}
		if _, err := parse(t, "--guard-names", "yes", "--", "cmd"); err == nil || !strings.Contains(err.Error(), `--guard-names: "yes" is none of auto, on and off`) {
			t.Errorf("it is taken: %v", err)
		}
	})
	t.Run("the working directory is where it starts, if it is shown", func(t *testing.T) {
		r, err := parse(t, "--bind", "..", "--", "cmd")
		if err != nil {
			t.Fatal(err)
		}
		if p := r.profile(""); p.Dir != dir {
			t.Errorf("starts in %q", p.Dir)
		}
	})
	t.Run("a flag wins over the environment", func(t *testing.T) {
		t.Setenv("POSTERN_POLICY", "env")
		t.Setenv("POSTERN_MODE", "plan")
		t.Setenv("POSTERN_QUIET", "on")
		r, err := parse(t, "--policy", "flag", "--mode", "review", "--quiet=false", "--", "cmd")
		if err != nil || r.Policy != "flag" || r.Mode != sandbox.ModeReview || r.Quiet {
			t.Errorf("got %+v, %v", r, err)
		}
		if r, err = parse(t, "--", "cmd"); err != nil || r.Policy != "env" || r.Mode != sandbox.ModePlan || !r.Quiet {
			t.Errorf("without flags: %+v, %v", r, err)
		}
		// An empty flag is a flag.
		if r, err = parse(t, "--policy", "", "--", "cmd"); err != nil || r.Policy != "" {
			t.Errorf("with an empty flag: %+v, %v", r, err)
		}
	})
	for _, args := range [][]string{{}, {"--"}, {"--mode", "x", "--", "c"}, {"--network", "x", "--", "c"}, {"--nope", "--", "c"}, {"--bind", ":ro", "--", "c"}, {"--deny-name", "*.{a,b}", "--", "c"}, {"--free-dir", "none", "--", "c"}, {"--free-dir", "h", "--", "c"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			_, err := parse(t, args...)
			var r *sandbox.Refusal
			if !errors.As(err, &r) || r.Reason != reasonUsage {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := parse(t, "--help"); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("help gives %v", err)
	}
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := newID()
		if err := lease.ValidateID(id); err != nil || seen[id] {
			t.Fatalf("%q: %v, seen before: %t", id, err, seen[id])
		}
		seen[id] = true
	}
}

func TestOwnPathsAreProtected(t *testing.T) {
	r, err := parse(t, "--", "cmd")
	if err != nil {
		t.Fatal(err)
	}
	p := r.profile("")
	if !slices.Contains(p.Protected, filepath.Dir(settingsFile())) || len(p.Protected) != 2 {
		t.Errorf("protected %q", p.Protected)
	}
}
