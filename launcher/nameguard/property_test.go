package nameguard

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// parts are names that are near one another, so that rules and paths meet.
var parts = []string{
	"a", "b", "A", "ab", ".git", ".GIT", "hooks", "config", "modules", "node_modules", "w", "x.key", "x.Key", ".env", "．env", ".e\u200dnv", "é", "e\u0301", "ß", "ss", "ſ",
	"\xff", "x\ny", "ﬁ", "fi", "日本", strings.Repeat("n", 255),
}

var wilds = []string{"*", "?", "**", "a*", "*b", "?b", "*.key", ".env*", "s?", "??", "*é", "f?", "*?*"}

func drawConfig(t *rapid.T) Config {
	path := rapid.Custom(func(t *rapid.T) string {
		return "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 3).Draw(t, "path"), "/")
	})
	pattern := rapid.Custom(func(t *rapid.T) Rule {
		text := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(parts), rapid.SampledFrom(wilds)), 1, 4).Draw(t, "pattern"), "/")
		return Rule{Text: rapid.SampledFrom([]string{"", "", "/", "**/"}).Draw(t, "before") + text, Source: "test"}
	}).Filter(func(r Rule) bool { _, err := Parse(r.Text); return err == nil })
	toRule := func(text string) Rule { return Rule{Text: text, Source: "test"} }
	c := Config{
		Globs:    rapid.SliceOfN(pattern, 0, 3).Draw(t, "globs"),
		Names:    rapid.SliceOfN(pattern, 0, 3).Draw(t, "names"),
		Packages: rapid.SliceOfN(rapid.SampledFrom([]string{"node_modules", "b"}), 0, 2).Draw(t, "packages"),
		Paths:    rapid.SliceOfN(rapid.Map(path, toRule), 0, 2).Draw(t, "paths"),
		Free:     rapid.SliceOfN(path, 0, 1).Draw(t, "free"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "below") {
		if rule := pattern.Draw(t, "in it"); !strings.HasPrefix(rule.Text, "/") {
			c.Below = append(c.Below, Below{Dir: path.Draw(t, "dir"), Rule: rule})
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "sets") {
		c.Aliases = append(c.Aliases, rapid.SliceOfN(path, 2, 2).Draw(t, "set"))
	}
	c.TrapRemove = rapid.Bool().Draw(t, "trap")
	return c
}

// TestCheckIsTheReference compares Check with an answer that is found slowly.
func TestCheckIsTheReference(t *testing.T) {
	refused, asked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		r, err := Compile(c)
		if err != nil {
			t.Skip(err)
		}
		ref := &reference{c}
		for range 20 {
			dir := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 5).Draw(t, "dir"), "/")
			name := rapid.SampledFrom(parts).Draw(t, "name")
			for _, op := range everyOp {
				got, want := r.Check([]byte(dir), []byte(name), op), ref.refuses(dir, name, op)
				if (got != nil) != want {
					t.Fatalf("%d %q in %q by %+v: got %v, want %v", op, name, dir, c, got, want)
				}
				if asked++; want {
					refused++
				}
			}
		}
	})
	if refused == 0 || refused == asked {
		t.Errorf("%d of %d were refused: nothing was compared", refused, asked)
	}
}

// FuzzCompile: no text does harm, and what compiles can be asked.
func FuzzCompile(f *testing.F) {
	for _, text := range []string{".env", "**/.git/hooks", ".git/modules/**/config", "/w/*.key", "a\x00", "~", "\u200d", "é*?", "**/**", "[", "\xff/\xfe", strings.Repeat("*a", 60)} {
		f.Add(text, "/w", "x")
	}
	f.Fuzz(func(t *testing.T, text, dir, name string) {
		p, err := Parse(text)
		r, cerr := Compile(Config{Globs: from("fuzz", text)})
		if (err == nil) != (cerr == nil) {
			t.Fatalf("%q: parse says %v, compile %v", text, err, cerr)
		}
		if err != nil {
			return
		}
		r.Check([]byte(dir), []byte(name), OpWrite)
		// A pattern whose wildcards stand for themselves is forbidden by itself.
		at := "/" + strings.Join(p.Parts, "/")
		dir, name = cut(at)
		if utf8.ValidString(text) && r.Check([]byte(dir), []byte(name), OpWrite) == nil {
			t.Fatalf("%q does not forbid %q", text, at)
		}
	})
}

// FuzzCheck compares with the reference where the paths are hostile, and asks that what
// is folded is refused where its folded form is.
func FuzzCheck(f *testing.F) {
	for _, path := range []string{
		"/w/.env", "/w/.ENV", "/w/．env", "/w/id_rſa", "/w/server.\u212aey", "/w/.e\u200cnv", "/w/a\nb.pem", "/w/\xff\xfe.pem", "/w/.git/hooks/x", "/", "//", "/w//x", "/w/./.env",
		"/" + strings.Repeat("x", 255) + "/y", "/mnt/app/.git/config", "/w/free/.env", "/w/secretß.txt", "/w/node_modules/.npmrc", "/w/\xf0\x9f.key",
	} {
		f.Add([]byte(path), byte(0))
	}
	c := standard()
	c.TrapRemove = true
	r, err := Compile(c)
	if err != nil {
		f.Fatal(err)
	}
	ref := &reference{c}
	f.Fuzz(func(t *testing.T, path []byte, op byte) {
		if len(path) == 0 || path[0] != '/' || len(path) > 600 || strings.Contains(string(path), "//") {
			return
		}
		dir, name := cut(string(path))
		what := Op(op) % Op(len(everyOp))
		got := r.Check([]byte(dir), []byte(name), what)
		if name != "" && (got != nil) != ref.refuses(dir, name, what) {
			t.Fatalf("%d %q in %q: got %v", what, name, dir, got)
		}
		if got == nil && !strings.HasPrefix(dir, "/w/free") && !strings.Contains(dir, "node_modules") && !strings.Contains(fold(name), "/") {
			if again := r.Check([]byte(dir), []byte(fold(name)), what); again != nil && fold(name) != "node_modules" {
				t.Fatalf("%d %q in %q: allowed, and %q refused by %s", what, name, dir, fold(name), again.Text)
			}
		}
	})
}
