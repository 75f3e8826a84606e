package policy

import (
	"net/netip"
	"strings"
	"testing"
)

// A reason is read by an agent that has nothing else to go by: it names host, port,
// rule, place and cure.
func TestReason(t *testing.T) {
	s := setOf(t, testAlways, testDeny, testAllow)
	for _, c := range []struct{ in, addr, want string }{
		{
			"api.github.com:443", "",
			`api.github.com:443 is allowed by the rule "api.github.com" (allow:2)`,
		},
		{
			"evil.example:443", "",
			`evil.example:443 is refused: no rule allows it; add the rule "evil.example" to the policy's allow list or the session's egressAllowlist`,
		},
		{
			"evil.example:8443", "",
			`evil.example:8443 is refused: no rule allows it; add the rule "evil.example 8443" to the policy's allow list or the session's egressAllowlist`,
		},
		{
			"anthropic.com:443", "",
			`anthropic.com:443 is refused: the rule "*.anthropic.com 443" (allow:4) covers what is below anthropic.com, not anthropic.com itself; add the rule "anthropic.com" to the allow list`,
		},
		{
			"github.com:8443", "",
			`github.com:8443 is refused: the rule "github.com 22 443" (allow:3) allows ports 22 and 443 only; add the rule "github.com 8443" to open this one`,
		},
		{
			"o1.sentry.io:443", "",
			`o1.sentry.io:443 is denied by the rule "*.sentry.io" (deny:2); a deny rule beats every allow: only removing it there opens the host`,
		},
		{
			"169.254.169.254:80", "",
			`169.254.169.254:80 is closed by the rule "169.254.169.254" (built-in); no policy, session or grant opens it`,
		},
		{
			"127.0.0.1:20001", "",
			`127.0.0.1:20001 is a listener of this appliance, which is never a destination; ask for another host`,
		},
		{
			"0.0.0.0:80", "",
			`0.0.0.0:80 is refused: it is the unspecified address, which reaches this machine; no rule opens it`,
		},
		{
			"[fd12::1]:5432", "",
			`[fd12::1]:5432 is refused: no rule allows it; add the rule "fd12::1" to the policy's allow list or the session's egressAllowlist`,
		},
		{
			"x.localhost:3000", "",
			`x.localhost:3000 is refused: no rule allows it; add the rule "x.localhost 3000 private" to the policy's allow list or the session's egressAllowlist; if the client's own machine is meant, it has to be asked without a proxy`,
		},
		{
			"127.9.9.9:3000", "",
			`127.9.9.9:3000 is refused: no rule allows it; add the rule "127.9.9.9" to the policy's allow list or the session's egressAllowlist; if the client's own machine is meant, it has to be asked without a proxy`,
		},
		{
			"api.github.com:443", "10.0.0.5",
			`api.github.com:443 resolves to 10.0.0.5, an address of a private network (RFC 1918); add the flag private to the rule "api.github.com" (allow:2) if that is meant`,
		},
		{
			"api.github.com:443", "192.0.2.9",
			`api.github.com:443 resolves to 192.0.2.9, an address reserved for documentation; no rule opens it`,
		},
		{
			"api.github.com:443", "169.254.169.254",
			`api.github.com:443 (at 169.254.169.254) is closed by the rule "169.254.169.254" (built-in); no policy, session or grant opens it`,
		},
		{
			"api.github.com:443", "140.82.112.5",
			`api.github.com:443 (at 140.82.112.5) is allowed by the rule "api.github.com" (allow:2)`,
		},
		{
			"10.0.0.5:443", "10.0.0.6",
			`10.0.0.5:443 is refused: the connection would go to 10.0.0.6 instead`,
		},
		{
			"localhost:3000", "10.0.0.5",
			`localhost:3000 is refused: the name means this machine, but resolves to 10.0.0.5`,
		},
	} {
		target := targetOf(t, c.in)
		d := s.Decide(target)
		if c.addr != "" {
			d = s.DecideAddr(target, netip.MustParseAddr(c.addr))
		}
		if got := d.Reason(); got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.in, c.addr, got, c.want)
		}
	}

	for _, c := range []struct {
		name string
		d    Decision
		want string
	}{
		{"zero", Decision{}, "an empty target is refused: it names no host"},
		{"off", Off().Decide(targetOf(t, "a.com:443")), "a.com:443 is refused: network access is off for this session; start it with network access to reach anything"},
		{"gone", Closed("the policy left\nthe configuration").Decide(targetOf(t, "a.com:443")), "a.com:443 is refused: the policy left?the configuration"},
		{"nil", (*Set)(nil).Decide(targetOf(t, "a.com:443")), "a.com:443 is refused: no policy is loaded"},
		{"no answer", s.DecideAddr(targetOf(t, "api.github.com:443"), netip.Addr{}), "api.github.com:443 is refused: its lookup gave no address"},
		{"localhost without private", setOf(t, "", "", "localhost").Decide(targetOf(t, "localhost:80")), `localhost:80 is refused: the name means this machine; add the flag private to the rule "localhost" (allow:1) if that is meant`},
	} {
		if got := c.d.Reason(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// The rule that a refusal tells the reader to add must be one that opens the
// target, or the advice sends an agent in a circle.
func TestAdviceWorks(t *testing.T) {
	for _, in := range []string{
		"evil.example:443", "evil.example:80", "evil.example:8443", "intranet:22", "x.localhost:3000",
		"8.8.8.8:53", "10.0.0.5:5432", "[fd12::1]:5432", "example.com:443", "api.example.com:9",
	} {
		s := setOf(t, "", "", "*.example.com 443\n")
		target := targetOf(t, in)
		reason := s.Decide(target).Reason()
		_, rest, ok := strings.Cut(reason, `add the rule "`)
		if !ok {
			t.Errorf("%s: no advice in %s", in, reason)
			continue
		}
		line, _, _ := strings.Cut(rest, `"`)
		r, err := ParseRule(line, Origin{File: "session"})
		if err != nil {
			t.Errorf("%s: advice is no rule: %v", in, err)
			continue
		}
		wider, err := s.Extend([]Rule{r})
		if err != nil {
			t.Fatal(err)
		}
		if d := wider.Decide(target); !d.Allowed {
			t.Errorf("%s: with the advised rule %q: %s", in, line, d.Reason())
		}
	}
}

func TestReasonListsFewPorts(t *testing.T) {
	s := setOf(t, "", "", "a.com 1 2 3 4 5 6 7 8 9 10 11 12")
	if got := s.Decide(targetOf(t, "a.com:443")).Reason(); !strings.Contains(got, "allows ports 1, 2, 3, 4, 5 and others only") {
		t.Errorf("got %s", got)
	}
}

func TestCodeString(t *testing.T) {
	want := []string{
		"not_allowed", "allowed", "denied", "always_denied", "own_listener",
		"port_not_allowed", "address_class", "network_off", "policy_gone",
	}
	for i, name := range want {
		if got := Code(i).String(); got != name {
			t.Errorf("code %d: got %s, want %s", i, got, name)
		}
	}
	if got := Code(99).String(); got != "code_99" {
		t.Errorf("unknown code: got %s", got)
	}
}
