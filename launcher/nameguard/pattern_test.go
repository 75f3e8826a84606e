package nameguard

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Pattern{
		".env":                   {Parts: []string{".env"}},
		"**/.env":                {Parts: []string{".env"}},
		"**/**/.env/":            {Parts: []string{".env"}},
		"/**/.env":               {Parts: []string{".env"}},
		"*.key":                  {Parts: []string{"*.key"}},
		".git//hooks":            {Parts: []string{".git", "hooks"}},
		".git/modules/**/**/c":   {Parts: []string{".git", "modules", "**", "c"}},
		"/w/x":                   {Rooted: true, Parts: []string{"w", "x"}},
		"/w/**/x":                {Rooted: true, Parts: []string{"w", "**", "x"}},
		"src/**":                 {Parts: []string{"src", "*"}},
		"a b/ü":                  {Parts: []string{"a b", "ü"}},
		strings.Repeat("x", 255): {Parts: []string{strings.Repeat("x", 255)}},
	} {
		got, err := Parse(text)
		if err != nil || got.Rooted != want.Rooted || !slices.Equal(got.Parts, want.Parts) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

// TestFaults: what cannot be honoured exactly is refused, with the pattern and the cure.
func TestFaults(t *testing.T) {
	for text, cure := range map[string]string{
		"":                        "name a file",
		"/":                       "DIR:ro",
		"*":                       "DIR:ro",
		"**":                      "DIR:ro",
		"**/*":                    "DIR:ro",
		"a\nb":                    "write ?",
		"a\x00b":                  "write ?",
		"~/x":                     "whole path",
		"!x":                      "free directory",
		"./x":                     "for every depth",
		"../x":                    "for every depth",
		"a/../b":                  "folder itself",
		"a/./b":                   "folder itself",
		"**.key":                  "**/*.key",
		"*.{key,pem}":             "one pattern for each name",
		"[ab].key":                "one pattern for each name",
		`a\*`:                     "one pattern for each name",
		strings.Repeat("x", 256):  "255",
		strings.Repeat("a/", 65):  "64",
		strings.Repeat("a/", 3e3): "4096",
		"\u200d":                  "name something",
		"*\u200d":                 "name something",
		"*\u0301x":                "that character too",
	} {
		_, err := Compile(Config{Globs: []Rule{{text, "--deny-name"}}})
		if err == nil || !strings.Contains(err.Error(), cure) || !strings.Contains(err.Error(), "--deny-name") {
			t.Errorf("%q: got %v", text, err)
		}
	}
	for name, c := range map[string]Config{
		"a relative path":         {Paths: from("spec", "w/x")},
		"the root":                {Paths: from("spec", "/")},
		"an unclean path":         {Paths: from("spec", "/w/../x")},
		"a slash at the end":      {Paths: from("spec", "/w/")},
		"packages with a slash":   {Packages: []string{"a/b"}},
		"packages without a name": {Packages: []string{""}},
		"a free root":             {Free: []string{"/"}},
		"a relative free one":     {Free: []string{"x"}},
		"free in a path":          {Free: []string{"/w/x/y"}, Paths: from("spec", "/w/x")},
		"free around a path":      {Free: []string{"/w"}, Paths: from("spec", "/w/x")},
		"free at a path":          {Free: []string{"/w/x"}, Paths: from("spec", "/w/x")},
		"free in a pattern":       {Free: []string{"/w/a.d/x"}, Globs: from("spec", "/w/*.d")},
		"free around a pattern":   {Free: []string{"/w/a"}, Globs: from("spec", "/w/**/x")},
		"free by another name":    {Free: []string{"/m"}, Paths: from("spec", "/w/x"), Aliases: [][]string{{"/w", "/m"}}},
		"free and seen elsewhere": {Free: []string{"/w"}, Aliases: [][]string{{"/w/a", "/m"}}},
		"a mount of nothing":      {Aliases: [][]string{{"/w", ""}}},
		"a mount of itself":       {Aliases: [][]string{{"/w", "/w/w"}}},
		"too many":                {Globs: make([]Rule, maxRules+1)},
	} {
		if _, err := Compile(c); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
}

// TestEveryFaultIsTold: all at once, each with its source.
func TestEveryFaultIsTold(t *testing.T) {
	_, err := Compile(Config{Globs: []Rule{{"~", "a"}, {"x", "b"}}, Names: []Rule{{"[", "c"}}, Paths: []Rule{{"d", "d"}}, Free: []string{"e"}})
	if err == nil {
		t.Fatal("compiled")
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 4 {
		t.Errorf("got %v", err)
	}
}
