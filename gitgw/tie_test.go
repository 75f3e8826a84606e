package gitgw

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func rulesFor(tb testing.TB, patterns ...string) *Rules {
	tb.Helper()
	var blocks []RepoRules
	for i, text := range patterns {
		p, err := ParseRepoPattern("github.com/" + text)
		if err != nil {
			tb.Fatal(err)
		}
		blocks = append(blocks, RepoRules{Pattern: p, Source: "Caddyfile:" + string(rune('1'+i))})
	}
	r, err := NewRules(blocks...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestTie(t *testing.T) {
	for _, c := range []struct {
		patterns string
		repo     string // that both match; "" for no tie
	}{
		{"a*/app *b/app", "ab/app"},
		{"acme/app-* acme/*-web", "acme/app-web"},
		{"acme/a*b acme/a*b*", "acme/ab"},
		{"acme/x* acme/*x", "acme/x"},
		{"a*/x* *a/*x", "a/x"},
		{"acme/*ab acme/ba*", "acme/bab"},
		{"acme/a* acme/b*", ""},
		{"acme/app acme/*", ""},
		{"acme/* */app", ""},
		{"acme/* */*", ""},
		{"a*/app b*/app", ""},
		{"acme/app-* acme/app-we*", ""},
		{"acme/app-* acme/app_*", ""},
		{"acme/a* acme/*a acme/a", "acme/aa"},
		// What ends where a name is empty goes on behind it.
		{"*/*a */a* a/*", "x/a"},
		{"a*/* *b/*", "ab/a"},
		// What both match, a third matches better.
		{"a*/app *b/app ab/app", "aab/app"},
		{"a*/app *b/app a*b/app", ""},
		{"acme/ab* acme/*bc acme/ab*bc", "acme/abc"},
		{"acme/ab* acme/*bc acme/ab*bc acme/abc", ""},
	} {
		patterns := strings.Fields(c.patterns)
		err := rulesFor(t, patterns...).Tie()
		switch {
		case (err == nil) != (c.repo == ""):
			t.Errorf("%s: %v", c.patterns, err)
		case err != nil && (!strings.Contains(err.Error(), " match github.com/"+c.repo+" equally well") || !strings.Contains(err.Error(), "(Caddyfile:1)") || !strings.Contains(err.Error(), "(Caddyfile:2)")):
			t.Errorf("%s: %v, want %s", c.patterns, err, c.repo)
		}
	}
	if err := (*Rules)(nil).Tie(); err != nil {
		t.Error(err)
	}
}

// What is called a tie is one, and where none is called every repository has its block.
func TestTieIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.StringMatching(`[ab*]{1,4}`).Filter(func(s string) bool { return !strings.Contains(s, "**") })
		var blocks []RepoRules
		seen := map[RepoPattern]bool{}
		for range rapid.IntRange(2, 4).Draw(t, "blocks") {
			p, err := ParseRepoPattern("h.example/" + rapid.SampledFrom([]string{"a", "*", "a*", "*b"}).Draw(t, "owner") + "/" + segment.Draw(t, "name"))
			if err != nil {
				t.Fatal(err)
			}
			if !seen[p] {
				seen[p] = true
				blocks = append(blocks, RepoRules{Pattern: p, Source: p.String()})
			}
		}
		rules, err := NewRules(blocks...)
		if err != nil {
			t.Fatal(err)
		}
		open := func(repo Repo) bool {
			_, err := rules.block(repo)
			return err != nil && strings.Contains(err.Error(), "equally well")
		}
		if err := rules.Tie(); err != nil {
			_, text, _ := strings.Cut(err.Error(), " match ")
			text, _, _ = strings.Cut(text, " equally")
			repo, parseErr := ParseRepo(text)
			if parseErr != nil || !open(repo) {
				t.Fatalf("%v: no tie (%v)", err, parseErr)
			}
			return
		}
		repo, err := ParseRepo("h.example/" + rapid.StringMatching(`[abx]{1,3}`).Draw(t, "of") + "/" + rapid.StringMatching(`[abx]{1,6}`).Draw(t, "repo"))
		if err != nil {
			t.Fatal(err)
		}
		if open(repo) {
			t.Fatalf("%s is open among %v", repo, blocks)
		}
	})
}
