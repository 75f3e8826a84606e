package seatbelt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPathsAreSpelledOut holds SPEC 81 to 83 on a real disk: a denied path stands in the
// profile as it was given and as its links lead, a pattern as it is, a path that leads
// nowhere as it was written.
func TestPathsAreSpelledOut(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	target, link := filepath.Join(base, "real"), filepath.Join(base, "link")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	p := &Policy{
		Writable: []string{base}, Hidden: []string{link}, Protected: []string{filepath.Join(link, "later", "deep"), "/nowhere/x"}, Secrets: []string{"**/l?nk.*"},
		Resolve: func(path string) (string, error) { asked[path] = true; return filepath.EvalSymlinks(path) },
	}
	text, err := p.Profile()
	if err != nil {
		t.Fatal(err)
	}
	for name, paths := range map[string][]string{
		"SPEC_81_literal_and_resolved": {link, target},
		"SPEC_81_not_there_yet":        {filepath.Join(link, "later", "deep"), filepath.Join(target, "later", "deep")},
		"SPEC_83_kept_as_written":      {"/nowhere/x"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range paths {
				for _, form := range []string{literal(path), subpath(path)} {
					if !strings.Contains(text, "  "+form+"\n") {
						t.Errorf("no %s in\n%s", form, text)
					}
				}
			}
		})
	}
	t.Run("SPEC_82_globs_are_left", func(t *testing.T) {
		for path := range asked {
			if strings.ContainsAny(path, "*?") {
				t.Errorf("%s was resolved", path)
			}
		}
		if !strings.Contains(text, "(regex #\"/[lL][^/][nN]([kK]|\u212a)\\.[^/]*(/|$)\")") {
			t.Errorf("no rule for the pattern in\n%s", text)
		}
	})
}
