package egress

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"pgregory.net/rapid"

	"postern/caddy-modules/policy"
)

func TestParseRuleWords(t *testing.T) {
	from := policy.Origin{File: "x.list", Line: 3}
	for _, c := range []struct {
		name  string
		words []string
		want  Rule
		err   string
	}{
		{"host", []string{"a.example"}, Rule{Host: "a.example", From: "x.list:3"}, ""},
		{"ports", []string{"a.example", "443", "22"}, Rule{Host: "a.example", Ports: []uint16{443, 22}, From: "x.list:3"}, ""},
		{"flags", []string{"*.a.example", "private", "tcp"}, Rule{Host: "*.a.example", Private: true, TCP: true, From: "x.list:3"}, ""},
		{"everything", []string{"10.0.0.0/8", "22", "tcp"}, Rule{Host: "10.0.0.0/8", Ports: []uint16{22}, TCP: true, From: "x.list:3"}, ""},
		{"none", nil, Rule{}, "no host"},
		{"empty word", []string{""}, Rule{}, "is not one word"},
		{"blank in a word", []string{"a.example 22"}, Rule{}, "is not one word"},
		{"line break in a word", []string{"a.example\nb.example"}, Rule{}, "is not one word"},
		{"second host", []string{"a.example", "b.example"}, Rule{}, "neither a port nor"},
		{"unknown flag", []string{"a.example", "Private"}, Rule{}, "neither a port nor"},
		{"port 0", []string{"a.example", "0"}, Rule{}, "no port"},
		{"port with a zero", []string{"a.example", "0443"}, Rule{}, "no port"},
		{"port too high", []string{"a.example", "70000"}, Rule{}, "no port"},
		{"glued star", []string{"a*.example"}, Rule{}, "glued"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseRuleWords(c.words, from)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%+v, %v, want %q", got, err, c.err)
				}
				return
			}
			if err != nil || got.Host != c.want.Host || !slices.Equal(got.Ports, c.want.Ports) || got.Private != c.want.Private ||
				got.TCP != c.want.TCP || got.From != c.want.From {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// TestRuleMeansTheSame holds that the way over JSON loses nothing: the rule that
// is compiled is the one that was written, whatever it says.
func TestRuleMeansTheSame(t *testing.T) {
	word := rapid.SampledFrom([]string{"a.example", "*.b.example", "c.*.example.com", "10.0.0.0/8", "2001:db8::1", "A.Example.", "*", "443", "22", "65535", "0", "private", "tcp", "TCP", "x y", "", "#", "b_c.example"})
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(word, 1, 5).Draw(t, "words")
		direct, directErr := policy.ParseRule(strings.Join(words, " "), policy.Origin{File: "f", Line: 1})
		over, err := parseRuleWords(words, policy.Origin{File: "f", Line: 1})
		if err == nil && directErr != nil {
			t.Fatalf("%q: accepted as %+v, refused by the policy: %v", words, over, directErr)
		}
		if err != nil {
			// What is refused here alone is a word that is not one word.
			if directErr == nil && !slices.ContainsFunc(words, func(w string) bool { return w == "" || strings.Contains(w, " ") }) {
				t.Fatalf("%q: refused: %v", words, err)
			}
			return
		}
		compiled, err := compileRules([]Rule{over}, "place")
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		if compiled[0].String() != direct.String() || compiled[0].Origin != direct.Origin {
			t.Fatalf("%q: %q at %s, want %q at %s", words, compiled[0], compiled[0].Origin, direct, direct.Origin)
		}
	})
}

func TestCompileRulesNamesThePlace(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []Rule
		want  string
	}{
		{"by its from", []Rule{{Host: "ok.example", From: "a.list:1"}, {Host: "b*.example", From: "a.list:7"}}, "a.list:7: "},
		{"by its index", []Rule{{Host: "ok.example"}, {Host: "b*.example"}}, "policies.p.allow:2: "},
		{"bad from", []Rule{{Host: "ok.example", From: "a.list"}}, "want FILE:LINE"},
		{"from without a file", []Rule{{Host: "ok.example", From: ":3"}}, "want FILE:LINE"},
		{"from at line 0", []Rule{{Host: "ok.example", From: "a:0"}}, "want FILE:LINE"},
		{"words in the host", []Rule{{Host: "a.example 22"}}, "holds a blank"},
		{"no host", []Rule{{Ports: []uint16{443}}}, "policies.p.allow:1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := compileRules(c.rules, "policies.p.allow"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	rules, err := compileRules([]Rule{{Host: "a.example"}, {Host: "b.example", From: "C:/x.list:9"}}, "policies.p.allow")
	if err != nil {
		t.Fatal(err)
	}
	if rules[0].Origin.String() != "policies.p.allow:1" || rules[1].Origin != (policy.Origin{File: "C:/x.list", Line: 9}) {
		t.Errorf("origins: %v, %v", rules[0].Origin, rules[1].Origin)
	}
}

func TestOrigin(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"Caddyfile":                              "Caddyfile:4",
		filepath.Join(dir, "lists", "a.list"):    "lists/a.list:4",
		filepath.Join(dir, "..", "other.list"):   filepath.Join(filepath.Dir(dir), "other.list") + ":4",
		filepath.Join("/etc", "postern", "main"): "/etc/postern/main:4",
	} {
		d := caddyfile.NewDispenser([]caddyfile.Token{{File: file, Line: 4, Text: "x"}})
		d.Next()
		if got := Origin(d).String(); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
