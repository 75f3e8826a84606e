package sandbox

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestGlobs(t *testing.T) {
	for _, tc := range []struct {
		glob, root, path string
		want             bool
	}{
		{"**/*.pem", "/w", "/w/a.pem", true},
		{"**/*.pem", "/w", "/w/a/b/c/d/e/a.pem", true},
		{"**/*.pem", "/w", "/w/a.pem.txt", false},
		{"**/*.pem", "/w", "/w/A.PEM", true},
		{"**/*.pem", "/w", "/w/.pem", true},
		{"*.pem", "/w", "/w/a.pem", true},
		{"*.pem", "/w", "/w/a/a.pem", false},
		{"a/*.pem", "/w", "/w/a/x.pem", true},
		{"a/*.pem", "/w", "/w/b/a/x.pem", false},
		{"a/**/x", "/w", "/w/a/x", true},
		{"a/**/x", "/w", "/w/a/b/c/x", true},
		{"a/**/b/x", "/w", "/w/a/b/c/b/x", true},
		{"a/**/b/**/c/x", "/w", "/w/a/b/b/c/c/x", true},
		{"a/**/b/x", "/w", "/w/a/b/c/x", false},
		{"**/.env", "/w", "/w/.env", true},
		{"**/.env", "/w", "/w/.env.local", false},
		{"**/.env.*", "/w", "/w/s/.env.local", true},
		{"**/k?y", "/w", "/w/key", true},
		{"**/k?y", "/w", "/w/k\u00e9y", true},
		{"**/k?y", "/w", "/w/ky", false},
		{"**/a*b*c", "/w", "/w/axxbyybzc", true},
		{"**/a*b*c", "/w", "/w/axxbyybz", false},
		{"**/[a]*", "/w", "/w/a1", false},
		{"**/[a]*", "/w", "/w/[a]1", true},
		{"**/{a,b}*", "/w", "/w/{a,b}", true},
		{"keys/**", "/w", "/w/keys/x", true},
		{"/w/**/*.pem", "/w", "/w/s/a.pem", true},
		{"/w/**/*.pem", "/w/s", "/w/s/a.pem", true},
		{"/w/**/*.pem", "/v", "/v/s/a.pem", false},
		{"/w/*.pem", "/w", "/w/s/a.pem", false},
		{"**/*", "/w", "/w/x", true},
		{"./a/*", "/w", "/w/a/x", true},
	} {
		s, err := parseGlobs([]string{tc.glob})
		must(t, err)
		dir, name := filepath.Split(tc.path)
		if got := s.match(tc.root, filepath.Clean(dir), []byte(name)) != ""; got != tc.want {
			t.Errorf("%s in %s: %s: got %t", tc.glob, tc.root, tc.path, got)
		}
	}
	for _, text := range []string{"", "/", "..", "a/../b*", "a\x00*"} {
		if _, err := parseGlob(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if _, err := parseGlobs(slices.Repeat([]string{"*x"}, maxGlobs+1)); err == nil {
		t.Error("more patterns than the mask has bits are taken")
	}
}

// FuzzGlob compares with an expression of the standard library that says the same.
func FuzzGlob(f *testing.F) {
	f.Add("**/*.pem", "a/b/c.pem")
	f.Add("a*/**/?b*", "ab/c/xb")
	f.Add("/w/**/**/k*", "k")
	f.Add("*??xy", "日xy") // one character, of three bytes
	f.Fuzz(func(t *testing.T, text, path string) {
		g, err := parseGlob(text)
		path = strings.Trim(filepath.Clean("/"+path), "/")
		if err != nil || path == "" || strings.ContainsRune(path, 0) {
			return
		}
		var expr strings.Builder
		expr.WriteString(`^/`)
		for i, part := range g.parts {
			last := i == len(g.parts)-1
			if part == "**" {
				expr.WriteString(`([^/]*/)*`)
				continue
			}
			part = regexp.QuoteMeta(part)
			part = strings.ReplaceAll(strings.ReplaceAll(part, `\*`, `[^/]*`), `\?`, `[^/]`)
			expr.WriteString(part)
			if !last {
				expr.WriteString(`/`)
			}
		}
		lower := lowerASCII("/" + path)
		if lower != strings.ToValidUTF8(lower, "") || text != strings.ToValidUTF8(text, "") {
			lower = "" // the expression reads characters; only for crashes
		}
		s, err := parseGlobs([]string{text})
		must(t, err)
		root := "/w"
		full := "/w/" + path
		if g.abs {
			full = "/" + path
		}
		dir, name := filepath.Split(full)
		got := s.match(root, filepath.Clean(dir), []byte(name)) != ""
		re, err := regexp.Compile(`(?s)` + expr.String() + `$`)
		if err == nil && lower != "" && re.MatchString(lower) != got {
			t.Errorf("%q and %q: got %t, and %s", text, full, got, re)
		}
	})
}

func TestIsGlob(t *testing.T) {
	for text, want := range map[string]bool{
		"/a*b": true, "/[ab]": false, "/{a,b}": false, "**/*.pem": true, "/?": true, "/a": false,
	} {
		if got := IsGlob(text); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
}

// What a pattern matches is hidden wherever it lies, and in every kind of bind.
func TestHiddenGlobs(t *testing.T) {
	base := tree(t, "w/a.pem", "w/x/y/z/v/deep.pem", "w/node_modules/p/b.PEM", "w/keys.pem/inside", "w/.git/HEAD", "w/.git/objects/x.pem", "w/app.go",
		"w/in.pem -> app.go", "w/out.pem -> ../out", "w/dir.pem -> x", "w/gone.pem -> nowhere", "out", "ro/c.pem", "ro/sub/.env", "one.pem", "other.pem", "w/sub/top")
	want := []string{"one.pem", "ro/c.pem", "ro/sub/.env", "w/a.pem", "w/app.go", "w/keys.pem", "w/node_modules/p/b.PEM", "w/sub/top", "w/x/y/z/v/deep.pem"}
	for _, mode := range Modes() {
		f := gather(t, &Profile{
			Binds:       []Bind{{Path: base + "/w"}, {Path: base + "/ro", ReadOnly: true}, {Path: base + "/one.pem"}},
			Mode:        mode,
			HiddenGlobs: []string{"**/*.pem", base + "/ro/*/.e?v", base + "/w/sub/t*"},
			Home:        "/home/u",
		})
		if got := deniedIn(f, base, Hide); !slices.Equal(got, want) {
			t.Errorf("mode %s: hidden\n%q, want\n%q", mode, got, want)
		}
	}
	// A pattern may go through a link to the folder.
	must(t, os.Symlink("w", base+"/short"))
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}}, HiddenGlobs: []string{base + "/short/a*"}, Home: "/home/u"})
	if got := deniedIn(f, base, Hide); !slices.Equal(got, []string{"w/a.pem", "w/app.go"}) {
		t.Errorf("hidden %q", got)
	}
	_, err := Gather(&Profile{Binds: []Bind{{Path: base + "/w"}}, HiddenGlobs: []string{"../*"}, Home: "/home/u"})
	refusal(t, err, ReasonGlob)
}

// Every name of a file that is denied is.
func TestHardLinks(t *testing.T) {
	base := tree(t, "w/.npmrc", "w/a.pem", "w/s/", "w/.git/objects/aa/", "w/node_modules/p/", "ro/", "out/")
	for from, to := range map[string]string{
		"w/.npmrc": "w/s/alias", "w/a.pem": "w/.git/objects/aa/bb",
	} {
		must(t, os.Link(base+"/"+from, base+"/"+to))
	}
	must(t, os.Link(base+"/w/.npmrc", base+"/w/node_modules/p/n"))
	must(t, os.Link(base+"/w/a.pem", base+"/ro/visible"))
	must(t, os.Link(base+"/w/a.pem", base+"/out/unseen"))
	f := gather(t, &Profile{Binds: []Bind{{Path: base + "/w"}, {Path: base + "/ro", ReadOnly: true}}, HiddenGlobs: []string{"*.pem"}, Home: "/home/u"})
	if got, want := deniedIn(f, base, Protect), []string{"w/.npmrc", "w/node_modules/p/n", "w/s/alias"}; !slices.Equal(got, want) {
		t.Errorf("protected %q, want %q", got, want)
	}
	if got, want := deniedIn(f, base, Hide), []string{"ro/visible", "w/.git/objects/aa/bb", "w/a.pem"}; !slices.Equal(got, want) {
		t.Errorf("hidden %q, want %q", got, want)
	}
	if len(f.Warnings) != 4 || !strings.Contains(f.Warnings[0], "hard link") {
		t.Errorf("warnings %q", f.Warnings)
	}
}

// A walk that meets too much ends with an error, with every worker.
func TestWalkIsBounded(t *testing.T) {
	base := tempDir(t)
	for i := range 60 {
		for j := range 20 {
			must(t, os.MkdirAll(filepath.Join(base, string(rune('a'+i)), string(rune('a'+j)), "x"), 0o700))
		}
	}
	w := newWalk(base, "", "", nil)
	w.limit = 1000
	if _, err := w.run(place{path: base, depth: 1}); err == nil || !strings.Contains(err.Error(), "too much") {
		t.Errorf("got %v", err)
	}
	w = newWalk(base, "", "", nil)
	if _, err := w.run(place{path: base, depth: 1}); err != nil || w.entries.Load() != 60+2*60*20 {
		t.Errorf("got %v after %d names", err, w.entries.Load())
	}
}
