package dnsguard

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// TestFakesHaveABudget asks for one name after the other where no rule bounds them:
// the table stops to grow, and what has its place keeps it.
func TestFakesHaveABudget(t *testing.T) {
	for name, lists := range map[string]policy.Lists{
		"ask any":          {AskAny: true},
		"ask a wildcard":   {Ask: list(t, "*.example.com")},
		"only reported":    {},
		"a rule elsewhere": {AskAny: true, Allow: list(t, "exact.example.org")},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, Config{QPS: 1 << 19})
			set, err := policy.Compile(lists, nil)
			if err != nil {
				t.Fatal(err)
			}
			if name == "only reported" {
				set = set.Reporting()
			}
			v := l.Session("s", l.rulesOf(set), WithFakeIP(true))
			defer v.Close()
			for i := range maxLoose {
				if m := ask(t, v, fmt.Sprintf("n%d.example.com", i), dns.TypeA); len(m.Answer) != 1 {
					t.Fatalf("name %d: %v", i, m)
				}
			}
			want(t, ask(t, v, "more.example.com", dns.TypeA), dns.RcodeServerFailure)
			want(t, ask(t, v, "n0.example.com", dns.TypeA), dns.RcodeSuccess, "198.18.0.1")
			if n := len(v.state.fakes.names); n != maxLoose {
				t.Errorf("%d names", n)
			}
			if len(lists.Allow) > 0 {
				if m := ask(t, v, "exact.example.org", dns.TypeA); len(m.Answer) != 1 {
					t.Errorf("what a rule names: %v", m)
				}
			}
		})
	}
}

// TestAskOnOtherPorts: what an approver may open on another port than the usual ones
// is answered like the rest, or nobody would ever be asked.
func TestAskOnOtherPorts(t *testing.T) {
	l := newLab(t, Config{})
	for lines, asked := range map[string]bool{
		"a.example.com 8443":                   true,
		"*.example.com 8443 9000":              true,
		"a.example.com 443":                    true,
		"b.example.com 8443":                   false,
		"a.example.com 1 2 3 4 5 6 7 8 9 1022": true,
	} {
		set, err := policy.Compile(policy.Lists{Ask: list(t, lines)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		v := l.Session(lines, l.rulesOf(set), WithFakeIP(true))
		if m := ask(t, v, "a.example.com", dns.TypeA); (len(m.Answer) == 1) != asked {
			t.Errorf("%s: %v", lines, m)
		}
		_ = v.Close()
	}
	// An allowing rule on yet another port is not hidden by it.
	set, err := policy.Compile(policy.Lists{Ask: list(t, "a.example.com 8443"), Allow: list(t, "*.example.com 9000")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	host, err := policy.ParseName("a.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if target, d := permit(set, host); !d.Allowed || target.Port() != 9000 {
		t.Errorf("%s: %s", target, d.Reason())
	}
	if n := len(l.up.queries()); n != 0 {
		t.Errorf("%d upstream queries", n)
	}
}
