package gitgateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// repoBlock reads a repo block with these lines.
func repoBlock(lines ...string) (*Handler, error) {
	h := new(Handler)
	text := "git_gateway {\n\trepo github.com/acme/app {\n\t\t" + strings.Join(lines, "\n\t\t") + "\n\t}\n}\n"
	return h, h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text))
}

func TestConditions(t *testing.T) {
	h, err := repoBlock("push agent/** create update force {", "max_pack 50MB", "max_refs 1", "secrets deny", "}",
		"max_refs 10", "max_pack 1GiB", "protect .github/workflows **/CODEOWNERS", "protect deploy/**", "options ci.skip ci.variable=*")
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(h.Repos[0])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"github.com/acme/app","rules":[{"verdict":"push","refs":["agent/**"],"actions":["create","update","force"],` +
		`"max_refs":1,"max_pack":50000000,"secrets":"deny","from":"Testfile:3"}],"max_refs":10,"max_pack":1073741824,` +
		`"protect":[".github/workflows","**/CODEOWNERS","deploy/**"],"options":["ci.skip","ci.variable=*"],"from":"Testfile:2"}`
	if string(out) != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	if h, err := repoBlock("options deny"); err != nil || !h.Repos[0].DenyOptions {
		t.Errorf("options deny: %v", err)
	}
}

func TestConditionsRefused(t *testing.T) {
	for lines, want := range map[string]string{
		"max_refs 0":                             "number from 1",
		"max_refs x":                             "number from 1",
		"max_refs":                               "wrong argument count",
		"max_refs 1\nmax_refs 2":                 "given twice",
		"max_pack much":                          "want a size",
		"max_pack 0":                             "want a size",
		"max_pack 50":                            "want a size with its unit, as in 50MB",
		"max_pack 5000000":                       "want a size with its unit",
		"max_pack 1.5":                           "want a size with its unit",
		"max_pack 50B":                           "1KiB or more",
		"max_pack 9GiB":                          "9.0 GiB is more than the 2GiB",
		"max_pack 99EiB":                         "want a size",
		"max_pack 15EiB":                         "more than the 2GiB",
		"max_refs 5001":                          "5001 is more than the 5000 refs",
		"max_refs 9999999":                       "more than the 5000 refs",
		"push main {\nmax_pack 3GB\n}":           "more than the 2GiB",
		"push main {\nmax_pack 3\n}":             "with its unit",
		"push main {\nmax_refs 6000\n}":          "more than the 5000",
		"secrets allow":                          "want deny",
		"protect":                                "wrong argument count",
		"protect /etc":                           "below the repository's root",
		"protect a/../b":                         "below the repository's root",
		"protect **":                             "names no path",
		"protect a**":                            "whole segment",
		"options":                                "wrong argument count",
		"options deny\noptions ci.skip":          "options that are let through",
		"options ci.skip\noptions deny":          "options that are let through",
		"push main {\nprotect x\n}":              "want reason, max_refs, max_pack or secrets",
		"push main {\nmax_refs 1\nmax_refs 1\n}": "given twice",
		"options deny ci.skip":                   "stands alone",
		"options ci.skip deny":                   "stands alone",
		"deny main {\nsecrets deny\n}":           "whatever the push holds",
		"deny main {\nmax_refs 1\n}":             "whatever the push holds",
		"maxrefs 3":                              "want push, ask, deny, max_refs",
	} {
		if _, err := repoBlock(strings.Split(lines, "\n")...); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Testfile:") {
			t.Errorf("%q: %v, want %q", lines, err, want)
		}
	}
}

// The limits are those of a configuration in JSON as well.
func TestConditionsInJSON(t *testing.T) {
	for _, c := range []struct {
		conditions Conditions
		want       string
	}{
		{Conditions{MaxPack: 50}, "50 bytes hold no push"},
		{Conditions{MaxPack: 3 << 30}, "more than the 2GiB"},
		{Conditions{MaxRefs: 5001}, "more than the 5000"},
		{Conditions{MaxRefs: 5000, MaxPack: 2 << 30}, ""},
	} {
		if _, err := c.conditions.compile(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.conditions, err, c.want)
		}
	}
}
