package main

import (
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
