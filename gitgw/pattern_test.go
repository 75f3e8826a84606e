package gitgw

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRefPattern(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"main", []string{"refs/heads/main"}, []string{"refs/heads/main2", "refs/heads/Main", "refs/tags/main", "refs/heads/x/main", "main"}},
		{"rel*", []string{"refs/heads/rel", "refs/heads/rel-1"}, []string{"refs/heads/rel/1", "refs/heads/arel"}},
		{"release/*", []string{"refs/heads/release/1"}, []string{"refs/heads/release", "refs/heads/release/1/fix"}},
		{"agent/**", []string{"refs/heads/agent/x", "refs/heads/agent/x/y"}, []string{"refs/heads/agent", "refs/heads/agents/x"}},
		{"**", []string{"refs/heads/a", "refs/heads/a/b/c"}, []string{"refs/tags/a", "refs/notes/commits"}},
		{"**/secret", []string{"refs/heads/secret", "refs/heads/a/secret", "refs/heads/a/b/secret"}, []string{"refs/heads/secrets", "refs/heads/secret/x"}},
		{"a/**/z", []string{"refs/heads/a/z", "refs/heads/a/b/z", "refs/heads/a/b/c/z"}, []string{"refs/heads/az", "refs/heads/a/zz"}},
		{"*/fix-*", []string{"refs/heads/a/fix-1"}, []string{"refs/heads/fix-1", "refs/heads/a/b/fix-1", "refs/heads/a/fix"}},
		{"tag:v*", []string{"refs/tags/v1"}, []string{"refs/heads/v1", "refs/tags/w1", "refs/tags/v/1"}},
		{"tag:**", []string{"refs/tags/v1", "refs/tags/a/b"}, []string{"refs/heads/v1"}},
		{"refs/**", []string{"refs/heads/a", "refs/notes/commits", "refs/for/x"}, nil},
		{"refs/notes/*", []string{"refs/notes/commits"}, []string{"refs/notes/a/b"}},
		{"refs/heads/delete", []string{"refs/heads/delete"}, nil},
		{"*a*b*", []string{"refs/heads/ab", "refs/heads/xaxbx", "refs/heads/aab"}, []string{"refs/heads/ba", "refs/heads/a/b"}},
	} {
		p, err := ParseRefPattern(c.pattern)
		if err != nil {
			t.Error(err)
			continue
		}
		if p.String() != c.pattern {
			t.Errorf("%q prints as %q", c.pattern, p)
		}
		for _, ref := range c.yes {
			if !p.Match(ref) {
				t.Errorf("%q does not match %q", c.pattern, ref)
			}
		}
		for _, ref := range c.no {
			if p.Match(ref) {
				t.Errorf("%q matches %q", c.pattern, ref)
			}
		}
	}
	if (RefPattern{}).Match("") || (RefPattern{}).Match("refs/heads/main") {
		t.Error("the zero pattern matches")
	}
}

func TestRefPatternErrors(t *testing.T) {
	for _, text := range []string{
		"", "HEAD", "refs", "!main", "/main", "main/", "a//b", "a b", "a..b", "x.lock", "re?", "re[l]", "a~1", "a^", "a:b",
		"agent**", "**x", "a/**/**/b", "tag:", "tag:refs/tags/v1", "refs/", "refs//x", "a\\b", "a\tb", "a\u00a0b", ".x", "x.", "@{u}", "***",
	} {
		if p, err := ParseRefPattern(text); err == nil {
			t.Errorf("%q was read as %v", text, p.segments)
		}
	}
}

// regexpOf is the pattern language told a second time.
func regexpOf(p RefPattern) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("^")
	for i, s := range p.segments {
		last := i == len(p.segments)-1
		switch {
		case s == "**" && last:
			b.WriteString("[^/]+(/[^/]+)*")
			continue
		case s == "**":
			b.WriteString("([^/]+/)*")
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, "[^/]*"))
		if !last {
			b.WriteString("/")
		}
	}
	return regexp.MustCompile(b.String() + "$")
}

func FuzzRefPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"main", "refs/heads/main"},
		{"agent/**", "refs/heads/agent/a/b"},
		{"**/x", "refs/heads/x"},
		{"a/**/b*", "refs/heads/a/b"},
		{"tag:v*", "refs/tags/v1"},
		{"*a*a*b", "refs/heads/aaaaaaaaaaab"},
		{"refs/**", "refs/x"},
		{"**", "refs/heads/"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, ref string) {
		p, err := ParseRefPattern(pattern)
		if err != nil || checkRef(ref) != nil {
			return
		}
		if got, want := p.Match(ref), regexpOf(p).MatchString(ref); got != want {
			t.Fatalf("%q on %q: %v, want %v", pattern, ref, got, want)
		}
	})
}

// words of a small language, so that patterns and refs meet often.
func someRef(t *rapid.T, segments ...string) string {
	parts := rapid.SliceOfN(rapid.SampledFrom(segments), 1, 4).Draw(t, "parts")
	return strings.Join(parts, "/")
}

// A pattern said to be within another one matches nothing that the other does
// not, and is not its equal.
func TestWithinIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := []string{"a", "b", "ab", "*", "a*", "*b", "**"}
		p, err1 := ParseRefPattern(someRef(t, alphabet...))
		q, err2 := ParseRefPattern(someRef(t, alphabet...))
		if err1 != nil || err2 != nil {
			t.Skip()
		}
		ref := "refs/heads/" + someRef(t, "a", "b", "ab", "ba", "abb")
		if p.within(q) && p.Match(ref) && !q.Match(ref) {
			t.Fatalf("%q is not within %q: %q", p, q, ref)
		}
		if p.within(q) && q.within(p) {
			t.Fatalf("%q and %q lie within each other", p, q)
		}
	})
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		narrow, wide string
		want         bool
	}{
		{"agent/**", "**", true},
		{"main", "**", true},
		{"main", "m*", true},
		{"a/b/*", "a/**", true},
		{"a/**/x", "a/**", true},
		{"release/1*", "release/*", true},
		{"**", "refs/**", true},
		{"**", "**", false},
		{"main", "main", false},
		{"**", "agent/**", false},
		{"*/hotfix", "agent/*", false},
		{"agent/*", "*/hotfix", false},
		{"a/**", "a/*", false},
		{"tag:v1", "**", false},
	} {
		p, err1 := ParseRefPattern(c.narrow)
		q, err2 := ParseRefPattern(c.wide)
		if err1 != nil || err2 != nil || p.within(q) != c.want {
			t.Errorf("%q within %q: %v, want %v (%v %v)", c.narrow, c.wide, !c.want, c.want, err1, err2)
		}
	}
}

func TestRepoPattern(t *testing.T) {
	repo, _ := ParseRepo("github.com/acme/app-web")
	for text, want := range map[string]bool{
		"github.com/acme/app-web": true, "GitHub.com/ACME/App-Web.git": true, "github.com/acme/*": true, "github.com/*/*": true,
		"github.com/acme/app-*": true, "github.com/acme/*-web": true, "github.com/a*/app-web": true,
		"github.com/acme/app": false, "ghe.example/acme/*": false, "github.com/other/*": false,
	} {
		p, err := ParseRepoPattern(text)
		if err != nil || p.Match(repo) != want {
			t.Errorf("%q: %v, want %v (%v)", text, !want, want, err)
		}
	}
	for _, text := range []string{"", "github.com", "github.com/*", "*/acme/app", "github.com/acme/**", "github.com/acme/a b", "github.com/acme/app/x", "github.com/\u212Aa/b", "github.com//app"} {
		if _, err := ParseRepoPattern(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	if (RepoPattern{}).Match(Repo{}) {
		t.Error("the zero pattern matches the zero repository")
	}
}
