package gitgw

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func block(tb testing.TB, repo string, lines ...string) RepoRules {
	tb.Helper()
	pattern, err := ParseRepoPattern(repo)
	if err != nil {
		tb.Fatal(err)
	}
	b := RepoRules{Pattern: pattern, Source: "Caddyfile:10"}
	for i, line := range lines {
		words := strings.Fields(line)
		rule, err := ParseRefRule(words[0], words[1:], fmt.Sprintf("Caddyfile:%d", 11+i))
		if err != nil {
			tb.Fatal(err)
		}
		b.Rules = append(b.Rules, rule)
	}
	return b
}

// update makes an update from `ACTION REF`.
func update(text string) Update {
	action, ref, _ := strings.Cut(text, " ")
	a, ok := parseAction(action)
	if !ok {
		panic(text)
	}
	return Update{Ref: ref, Action: a}
}

func TestDecide(t *testing.T) {
	app, _ := ParseRepo("github.com/acme/app")
	for _, c := range []struct {
		name   string
		rules  []string
		update string
		kind   Kind
		rule   string // that decided
		reason string
	}{
		{"no rule, no push", nil, "create refs/heads/x", Deny, "", "no rule allows push to x"},
		{"push", []string{"push agent/**"}, "create refs/heads/agent/x", Allow, "push agent/**", "push to agent/x is allowed (Caddyfile:11)"},
		{"update too", []string{"push agent/**"}, "update refs/heads/agent/x", Allow, "push agent/**", ""},
		{"deletion not named", []string{"push agent/**"}, "delete refs/heads/agent/x", Deny, "", "no rule allows deleting agent/x"},
		{"deletion named", []string{"push agent/** delete"}, "delete refs/heads/agent/x", Allow, "push agent/** delete", "deleting agent/x is allowed (Caddyfile:11)"},
		{"named actions are exact", []string{"push agent/** delete"}, "create refs/heads/agent/x", Deny, "", "no rule allows push to agent/x"},
		{"create only", []string{"push ** create"}, "update refs/heads/x", Deny, "", "no rule allows push to x"},
		{"deny stands", []string{"push **", "deny main"}, "update refs/heads/main", Deny, "deny main", "push to main is denied (Caddyfile:12)"},
		{"deny stands in any order", []string{"deny main", "push **"}, "update refs/heads/main", Deny, "deny main", "push to main is denied (Caddyfile:11)"},
		{"deny stands against the narrower", []string{"deny rel/**", "push rel/1"}, "update refs/heads/rel/1", Deny, "deny rel/**", ""},
		{"deny covers deletion", []string{"push ** create update delete", "deny main"}, "delete refs/heads/main", Deny, "deny main", "deleting main is denied (Caddyfile:12)"},
		{"deny of one action", []string{"push ** create update delete", "deny ** delete"}, "update refs/heads/x", Allow, "push ** create update delete", ""},
		{"deny of that action", []string{"push ** create update delete", "deny ** delete"}, "delete refs/heads/x", Deny, "deny ** delete", ""},
		{"ask", []string{"ask main release/*"}, "update refs/heads/release/1", Ask, "ask main release/*", "push to release/1 needs approval (Caddyfile:11)"},
		{"narrow ask, wide push", []string{"push **", "ask main"}, "update refs/heads/main", Ask, "ask main", ""},
		{"wide ask, narrow push", []string{"ask **", "push agent/**"}, "create refs/heads/agent/x", Allow, "push agent/**", ""},
		{"wide ask, the rest", []string{"ask **", "push agent/**"}, "create refs/heads/x", Ask, "ask **", ""},
		{"three deep", []string{"ask **", "push agent/**", "ask agent/prod"}, "update refs/heads/agent/prod", Ask, "ask agent/prod", ""},
		{"a tie asks", []string{"push main", "ask main"}, "update refs/heads/main", Ask, "ask main", ""},
		{"overlap without order asks", []string{"ask */hotfix", "push agent/*"}, "update refs/heads/agent/hotfix", Ask, "ask */hotfix", ""},
		{"ask does not cover deletion", []string{"ask **"}, "delete refs/heads/x", Deny, "", ""},
		{"tags are no branches", []string{"push **"}, "create refs/tags/v1", Deny, "", "no rule allows push to tag v1"},
		{"tags", []string{"push tag:v*"}, "create refs/tags/v1", Allow, "push tag:v*", ""},
		{"other refs", []string{"push **", "push tag:**"}, "create refs/notes/commits", Deny, "", "no rule allows push to refs/notes/commits"},
		{"case counts", []string{"push **", "deny main"}, "create refs/heads/Main", Allow, "push **", ""},
		{"a malformed ref", []string{"push refs/**"}, "create refs/heads/../main", Deny, "", `ref "refs/heads/../main" holds .. or @{`},
		{"not a full name", []string{"push **"}, "create main", Deny, "", `ref "main" does not begin with refs/`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules, err := NewRules(block(t, "github.com/acme/app", c.rules...))
			if err != nil {
				t.Fatal(err)
			}
			v := rules.Decide(app, update(c.update))
			if v.Kind != c.kind || v.Rule != c.rule {
				t.Errorf("%s by %q, want %s by %q", v.Kind, v.Rule, c.kind, c.rule)
			}
			if c.reason != "" && v.Reason != c.reason {
				t.Errorf("reason %q, want %q", v.Reason, c.reason)
			}
			if v.Reason == "" || v.Source == "" {
				t.Errorf("no reason or source: %+v", v)
			}
		})
	}
}

func TestDecideReason(t *testing.T) {
	app, _ := ParseRepo("github.com/acme/app")
	b := block(t, "github.com/acme/app", "deny main")
	b.Rules[0].Reason = "push to main is denied (rule 3)"
	rules, _ := NewRules(b)
	if v := rules.Decide(app, update("update refs/heads/main")); v.Reason != "push to main is denied (rule 3)" {
		t.Errorf("%+v", v)
	}
}

func TestHints(t *testing.T) {
	app, _ := ParseRepo("github.com/acme/app")
	for _, c := range []struct {
		rules  []string
		update string
		hint   string
	}{
		{[]string{"push agent/**", "ask release/*"}, "update refs/heads/main", "allowed here: agent/**, release/* (asks first)"},
		{[]string{"push agent/**"}, "delete refs/heads/agent/x", "deletions need a rule that names them, as in: push agent/** delete"},
		{[]string{"push old/** delete"}, "delete refs/heads/x", "deletions allowed here: old/**"},
		{[]string{"push **", "deny main"}, "update refs/heads/main", ""},
		{[]string{"push a b c d e f g h"}, "update refs/heads/x", "allowed here: a, b, c, d, e, f, and 2 more"},
		{[]string{"push agent/**"}, "update refs/heads/agent/x", ""},
	} {
		rules, _ := NewRules(block(t, "github.com/acme/app", c.rules...))
		if v := rules.Decide(app, update(c.update)); v.Hint != c.hint {
			t.Errorf("%v on %s: hint %q, want %q", c.rules, c.update, v.Hint, c.hint)
		}
	}
}

func TestBlocks(t *testing.T) {
	app, _ := ParseRepo("github.com/acme/app")
	web, _ := ParseRepo("github.com/acme/app-web")
	main := update("update refs/heads/main")
	rules, err := NewRules(
		block(t, "github.com/*/*", "push **"),
		block(t, "github.com/acme/*", "ask **"),
		block(t, "github.com/acme/app", "deny **"),
		block(t, "github.com/acme/app-*"),
	)
	if err != nil {
		t.Fatal(err)
	}
	for repo, want := range map[string]Kind{
		"github.com/acme/app": Deny, "github.com/acme/lib": Ask, "github.com/other/lib": Allow,
		"github.com/acme/app-web": Deny, "ghe.example/acme/app": Deny,
	} {
		r, _ := ParseRepo(repo)
		if v := rules.Decide(r, main); v.Kind != want {
			t.Errorf("%s: %+v, want %s", repo, v, want)
		}
	}
	if v := rules.Decide(mustRepo("ghe.example/acme/app"), main); v.Reason != "no rule names acme/app" {
		t.Errorf("%+v", v)
	}
	var none *Rules
	if v := none.Decide(app, main); v.Kind != Deny || v.Reason != "no push rules are configured" {
		t.Errorf("%+v", v)
	}
	// Two blocks that fit equally well leave the question open: denied.
	open, err := NewRules(block(t, "github.com/acme/app-*", "push **"), block(t, "github.com/acme/*-web", "push **"))
	if err != nil {
		t.Fatal(err)
	}
	if v := open.Decide(web, main); v.Kind != Deny || !strings.Contains(v.Reason, "equally well") {
		t.Errorf("%+v", v)
	}
	if _, err := NewRules(block(t, "github.com/acme/app"), block(t, "github.com/ACME/app.git")); err == nil {
		t.Error("one repository twice was accepted")
	}
	if _, err := NewRules(RepoRules{}); err == nil {
		t.Error("a block without repository was accepted")
	}
}

func mustRepo(text string) Repo {
	r, err := ParseRepo(text)
	if err != nil {
		panic(err)
	}
	return r
}

func TestParseRefRule(t *testing.T) {
	rule, err := ParseRefRule("push", []string{"delete", "agent/**", "create", "refs/heads/delete"}, "Caddyfile:9")
	if err != nil || rule.String() != "push agent/** refs/heads/delete delete create" || rule.Source != "Caddyfile:9" {
		t.Errorf("%q %v", rule, err)
	}
	for _, words := range [][]string{{"push"}, {"push", "delete"}, {"allow", "main"}, {"Push", "main"}, {"push", "a b"}, {"push", "main", "forced", "a b"}, {"", "main"}} {
		if rule, err := ParseRefRule(words[0], words[1:], ""); err == nil {
			t.Errorf("%v was read as %q", words, rule)
		}
	}
}

func TestVerdictWords(t *testing.T) {
	out, err := json.Marshal([]any{Allow, Ask, Deny, ActionCreate, ActionUpdate, ActionDelete, ActionForce})
	if err != nil || string(out) != `["allow","ask","deny","create","update","delete","force"]` {
		t.Errorf("%s %v", out, err)
	}
	var k Kind
	var a Action
	if json.Unmarshal([]byte(`"allow"`), &k) != nil || k != Allow || json.Unmarshal([]byte(`"delete"`), &a) != nil || a != ActionDelete {
		t.Errorf("%v %v", k, a)
	}
	if json.Unmarshal([]byte(`"push"`), &k) == nil || json.Unmarshal([]byte(`"forced"`), &a) == nil {
		t.Error("an unknown word was read")
	}
	// A rule begins with what it allows.
	for word, want := range map[string]Kind{"push": Allow, "ask": Ask, "deny": Deny} {
		if kind, err := ParseRuleWord(word); err != nil || kind != want {
			t.Errorf("%s: %v %v", word, kind, err)
		}
	}
	if kind, err := ParseRuleWord("allow"); err == nil || kind != Deny {
		t.Errorf("a rule that begins with allow: %v", kind)
	}
	if new(Kind).String() != "deny" {
		t.Error("the zero verdict does not deny")
	}
}

func BenchmarkDecide(b *testing.B) {
	rules, _ := NewRules(block(b, "github.com/acme/*", "push agent/**", "ask main release/*", "deny **/secret", "push tag:v*"))
	app := mustRepo("github.com/acme/app")
	u := update("update refs/heads/agent/x/y")
	b.ReportAllocs()
	for b.Loop() {
		if rules.Decide(app, u).Kind != Allow {
			b.Fatal("not allowed")
		}
	}
}
