package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/launcher/sandbox"
)

func TestIdentity(t *testing.T) {
	tree := t.TempDir()
	if err := os.MkdirAll(filepath.Join(tree, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The folder's own configuration names somebody, too.
	if err := os.WriteFile(filepath.Join(tree, ".git", "config"), []byte("[user]\n\tname = evil\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(tree)
	with := &sandbox.Facts{Roots: []sandbox.Root{{Path: tree}}}
	without := &sandbox.Facts{Roots: []sandbox.Root{{Path: t.TempDir()}}}
	for _, tc := range []struct {
		name, config string
		set          settings
		facts        *sandbox.Facts
		want         person
	}{
		{"the user's own", "[user]\n\tname = Ann Example\n\temail = ann@example.com\n", settings{}, with, person{"Ann Example", "ann@example.com"}},
		{"the settings win", "[user]\n\tname = Ann\n\temail = ann@example.com\n", settings{GitName: "Agent"}, with, person{"Agent", "ann@example.com"}},
		{"nobody said", "", settings{}, with, person{"(agent)", "@agents.postern.invalid"}},
		{"git is not asked without a repository", "[user]\n\tname = Ann\n", settings{}, without, person{"(agent)", "@agents.postern.invalid"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			t.Setenv("XDG_CONFIG_HOME", "")
			if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(tc.config), 0o644); err != nil {
				t.Fatal(err)
			}
			l := &launch{request: &request{settings: &tc.set}}
			got := <-l.identity(tc.facts)
			if !strings.HasSuffix(got.name, tc.want.name) || !strings.HasSuffix(got.email, tc.want.email) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// What is read without git is what git says.
func TestIdentityAsGitSays(t *testing.T) {
	for _, tc := range []struct{ name, home, xdg string }{
		{"plain", "[user]\n\tname = Ann Example\n\temail = ann@example.com\n", ""},
		{"quoted, with a comment", "[user] name = \"A # \\\"B\\\"\" c ; d\n", ""},
		{"twice", "[user]\nname = a\n[core]\nx=y\n[User]\nNAME = b\n", ""},
		{"empty", "[user]\nname =\nemail = \"\"\n", ""},
		{"an include", "[user]\nname = a\n[include]\npath = other\n", ""},
		{"a subsection is another thing", "[user \"x\"]\nname = a\n", ""},
		{"the other file", "", "[user]\nname = Xavier\nemail = x@example.com\n"},
		{"both files", "[user]\nname = Ann\nemail = ann@example.com\n", "[user]\nname = Xavier\nemail = x@example.com\n"},
		{"lines that go on", "[user]\nname = a \\\n  b\n", ""},
		{"no configuration", "[user\nname = a\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			t.Setenv("XDG_CONFIG_HOME", "")
			for path, text := range map[string]string{".gitconfig": tc.home, ".config/git/config": tc.xdg} {
				path = filepath.Join(home, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
				if text == "" {
					_ = os.Remove(path)
				}
			}
			got, err := readIdentity()
			if want := askGit(); err == nil && got != want {
				t.Errorf("read %+v, git says %+v", got, want)
			}
			if wrong := tc.name == "no configuration"; (err != nil) != wrong {
				t.Errorf("read: %v", err)
			}
		})
	}
}
