package dnsguard

import (
	"testing"

	"postern/caddy-modules/policy"
)

// A lookup is for no port and no scheme: one of each that the lists allow is enough.
func TestPermit(t *testing.T) {
	set := rules(t, []string{"plain.example http", "tls.example https", "odd.example 8080 http", "far.example 8443"}, []string{"tls.example 22", "closed.example http"})
	for name, want := range map[string]policy.Code{
		"plain.example":  policy.Allow,
		"tls.example":    policy.Allow,
		"odd.example":    policy.Allow,
		"far.example":    policy.Allow,
		"other.example":  policy.NotAllowed,
		"closed.example": policy.NotAllowed,
	} {
		host, err := policy.ParseHost(name)
		if err != nil {
			t.Fatal(err)
		}
		target, d := permit(set, host)
		if d.Code != want || d.Allowed != (want == policy.Allow) || target.IsZero() == d.Allowed {
			t.Errorf("%s: got %v for %v: %s", name, d.Code, target, d.Reason())
		}
	}
}

// Where the policy only reports, a denied name in a chain is no end of it either.
func TestHopReported(t *testing.T) {
	g := &Guard{}
	set := rules(t, []string{"a.example"}, []string{"b.example"})
	host, err := policy.ParseHost("a.example")
	if err != nil {
		t.Fatal(err)
	}
	hop, err := policy.ParseHost("b.example")
	if err != nil {
		t.Fatal(err)
	}
	target, _ := permit(set, host)
	if _, ok := g.hopAllowed(set, target, hop); ok {
		t.Error("the denied hop passes")
	}
	if d, ok := g.hopAllowed(set.Reporting(), target, hop); !ok || !d.WouldDeny() {
		t.Errorf("reported: %v", d.Code)
	}
}

// Named is what sessions are told of: what the lists open on some port in some scheme,
// and what an approver may open.
func TestNamed(t *testing.T) {
	ask := func(lists policy.Lists) *policy.Set {
		t.Helper()
		set, err := policy.Compile(lists, nil)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	asked, err := policy.ParseRule("a.example 22", policy.Origin{File: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  *policy.Set
		name string
		want bool
	}{
		{rules(t, []string{"a.example http"}, nil), "a.example", true},
		{rules(t, []string{"a.example 8443"}, nil), "a.example", true},
		{rules(t, []string{"a.example"}, []string{"a.example"}), "a.example", false},
		{rules(t, []string{"a.example"}, nil), "b.example", false},
		{rules(t, []string{"a.example"}, nil), "no name", false},
		{ask(policy.Lists{Ask: []policy.Rule{asked}}), "a.example", true},
		{ask(policy.Lists{Ask: []policy.Rule{asked}}), "b.example", false},
		{ask(policy.Lists{AskAny: true}), "b.example", true},
		{policy.Off(), "a.example", false},
		{nil, "a.example", false},
	} {
		if got := Named(c.set, c.name); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
