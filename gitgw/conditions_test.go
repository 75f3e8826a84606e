package gitgw

import (
	"strings"
	"testing"
)

func TestPathPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, path string
		want          reach
	}{
		{".github/workflows", ".github", toward},
		{".github/workflows", ".github/workflows", matches},
		{".github/workflows", ".github/workflows/a/b.yml", matches},
		{".github/workflows", ".GitHub/Workflows/x", matches},
		{".github/workflows", ".github/other", apart},
		{".github/workflows", "src/.github/workflows", apart},
		{".github/workflows/", ".github/workflows/x", matches},
		{"deploy/**", "deploy", matches},
		{"deploy/**", "deploy/a/b", matches},
		{"deploy/*.yaml", "deploy", toward},
		{"deploy/*.yaml", "deploy/a.yaml", matches},
		{"deploy/*.yaml", "deploy/a.yml", apart},
		{"deploy/*.yaml", "deploy/sub/a.yaml", apart},
		{"**/CODEOWNERS", "CODEOWNERS", matches},
		{"**/CODEOWNERS", "a/b/codeowners", matches},
		{"**/CODEOWNERS", "a/b", maybe},
		{"ci/**/secret", "ci", toward},
		{"ci/**/secret", "ci/a", maybe},
		{"ci/**/secret", "ci/secret", matches},
		{"ci/**/secret", "ci/a/b/secret/c", matches},
		{"ci/**/secret", "other", apart},
	} {
		p, err := ParsePathPattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.reaches(strings.Split(c.path, "/")); got != c.want {
			t.Errorf("%s and %s: %d, want %d", c.pattern, c.path, got, c.want)
		}
	}
	for _, text := range []string{"", "**", "/", "/etc", "../x", "..", "a/../b", "a//b", "!x", "a**", "a/**/**", "a\\b", "a\nb", "./a"} {
		if p, err := ParsePathPattern(text); err == nil {
			t.Errorf("%q was read as %v", text, p.segments)
		}
	}
}

// Of two sets of conditions the stricter counts, one by one.
func TestConditionsAnd(t *testing.T) {
	t.Parallel()
	ci, _ := ParsePathPattern("ci/**")
	docs, _ := ParsePathPattern("docs")
	a := Conditions{MaxRefs: 3, MaxPack: 1 << 30, Protect: []PathPattern{ci}}
	b := Conditions{MaxPack: 50e6, Secrets: true, Protect: []PathPattern{docs, ci}}
	for _, got := range []Conditions{a.and(b), b.and(a)} {
		if got.MaxRefs != 3 || got.MaxPack != 50e6 || !got.Secrets || len(got.Protect) != 2 {
			t.Errorf("%+v", got)
		}
	}
	if got := a.and(b).String(); got != "if it has at most 3 refs, a pack of at most 50 MB, no secrets, no change of ci/**, docs" {
		t.Error(got)
	}
	for n, want := range map[int64]string{50e6: "50 MB", 16 << 20: "16 MiB", 1 << 30: "1 GiB", 1001: "1001 bytes", 2000: "2 kB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// A forced update is decided by the rules that name force, and only those.
func TestDecideForce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines  []string
		action string
		forced Forced
		want   Kind
		needs  bool
	}{
		{[]string{"push x"}, "update", ForcedUnknown, Allow, true},
		{[]string{"push x"}, "update", ForcedNo, Allow, false},
		{[]string{"push x"}, "update", ForcedYes, Deny, false},
		{[]string{"push x"}, "create", ForcedUnknown, Allow, false},
		{[]string{"push x create update force"}, "update", ForcedUnknown, Allow, false},
		{[]string{"push x create update force"}, "update", ForcedYes, Allow, false},
		{[]string{"push x", "ask x force"}, "update", ForcedUnknown, Allow, true},
		{[]string{"push x", "ask x force"}, "update", ForcedYes, Ask, false},
		{[]string{"ask x create update force"}, "update", ForcedUnknown, Ask, true},
		{[]string{"deny x"}, "update", ForcedUnknown, Deny, false},
		{[]string{"deny x"}, "update", ForcedYes, Deny, false},
		{[]string{"push x force"}, "update", ForcedUnknown, Deny, false},
		{[]string{"push x force"}, "update", ForcedYes, Deny, false},
		{[]string{"push x force"}, "force", ForcedUnknown, Deny, false},
		{[]string{"push x create update force"}, "force", ForcedUnknown, Allow, false},
		{[]string{"push x"}, "force", ForcedUnknown, Deny, false},
		{[]string{"push x create update force", "deny x force"}, "update", ForcedUnknown, Allow, true},
		{[]string{"push x create update force", "deny x force"}, "update", ForcedYes, Deny, false},
	} {
		set, err := NewRules(block(t, "github.com/acme/app", c.lines...))
		if err != nil {
			t.Fatal(err)
		}
		u := Update{Ref: "refs/heads/x", Old: "1", New: "2", Forced: c.forced}
		if err := u.Action.UnmarshalText([]byte(c.action)); err != nil {
			t.Fatal(err)
		}
		v := set.Decide(mustRepo("github.com/acme/app"), u)
		if v.Kind != c.want || v.NeedsForced != c.needs {
			t.Errorf("%v %s forced %d: %s, needs %v", c.lines, c.action, c.forced, v.Kind, v.NeedsForced)
		}
	}
}
