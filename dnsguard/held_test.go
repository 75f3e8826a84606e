package dnsguard

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// TestAskedNames are those that an approver may open: they get a made-up address,
// so that the connection can be asked about, and are looked up after the yes alone.
func TestAskedNames(t *testing.T) {
	l := newLab(t, Config{})
	set, err := policy.Compile(policy.Lists{Ask: list(t, "*.example.com 8443"), Ranges: policy.Ranges{Public: testNets}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	anyHost, err := policy.Compile(policy.Lists{AskAny: true, Deny: list(t, "evil.example"), Ranges: policy.Ranges{Public: testNets}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]*policy.Set{"listed": set, "any": anyHost} {
		t.Run(name, func(t *testing.T) {
			v := l.Session(name, l.rulesOf(set), WithFakeIP(true))
			defer v.Close()
			l.up.queries() // those of before
			if name == "any" {
				want(t, ask(t, v, "a.example.com", dns.TypeA), dns.RcodeSuccess, "198.18.0.1")
			}
			want(t, ask(t, v, "evil.example", dns.TypeA), dns.RcodeNameError)
			plain := l.Session(name+" without", l.rulesOf(set))
			defer plain.Close()
			want(t, ask(t, plain, "a.example.com", dns.TypeA), dns.RcodeNameError)
			if _, err := v.Resolve(t.Context(), "a.example.com"); !isRefused(err) {
				t.Errorf("looked up without a yes: %v", err)
			}
			if n := len(l.up.queries()); n != 0 {
				t.Fatalf("%d upstream queries", n)
			}
			target, err := policy.ParseTarget("a.example.com:8443", policy.SchemeTCP)
			if err != nil {
				t.Fatal(err)
			}
			ctx := policy.WithApproval(t.Context(), target, policy.Origin{File: "approved by ann"})
			if got, err := v.Resolve(ctx, "a.example.com"); err != nil || len(got) == 0 {
				t.Errorf("%v %v", got, err)
			}
			for _, other := range []string{"b.example.com", "evil.example"} {
				if _, err := v.Resolve(ctx, other); !isRefused(err) {
					t.Errorf("%s: %v", other, err)
				}
			}
		})
	}
}

func list(t *testing.T, line string) []policy.Rule {
	t.Helper()
	rule, err := policy.ParseRule(line, policy.Origin{File: "test.list", Line: 1})
	if err != nil {
		t.Fatal(err)
	}
	return []policy.Rule{rule}
}

func isRefused(err error) bool {
	_, ok := errors.AsType[*RefusedError](err)
	return ok
}

// TestHoldLocalhost: a name that is answered here is held without a pin.
func TestHoldLocalhost(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "*.example.com")
	for addr, want := range map[string]bool{"127.0.0.1": true, "::1": true, "127.0.0.2": false, "10.0.0.1": false} {
		release, ok := v.Hold("localhost", netip.MustParseAddr(addr))
		if ok != want {
			t.Errorf("%s: %v", addr, ok)
		}
		release()
	}
	if _, ok := v.Hold("a.example.com", netip.MustParseAddr("127.0.0.1")); ok {
		t.Error("an address that was never handed out is held")
	}
}
