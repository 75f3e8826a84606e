package policy

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func askSet(t *testing.T, deny, allow, ask string, anyHost bool) *Set {
	t.Helper()
	s, err := Compile(Lists{Deny: rulesOf(t, "deny", deny), Allow: rulesOf(t, "allow", allow), Ask: rulesOf(t, "ask", ask), AskAny: anyHost}, ownListeners)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a policy asks about is refused until somebody says yes, and the yes opens
// that one target.
func TestAsk(t *testing.T) {
	s := askSet(t, "bad.corp.example\n10.9.0.0/16", "open.corp.example\ngit.example 22", "*.corp.example\ngit.example\n10.1.2.3 5432\n10.9.0.1\nlocalhost", false)
	for in, want := range map[string]Code{
		"open.corp.example:443":         Allow,
		"open.corp.example:8443":        PortNotAllowed,
		"wiki.corp.example:443":         AskFirst,
		"wiki.corp.example:22":          PortNotAllowed,
		"bad.corp.example:443":          Denied,
		"git.example:22":                Allow,
		"git.example:443":               AskFirst,
		"git.example:8443":              PortNotAllowed,
		"10.1.2.3:5432":                 AskFirst,
		"10.1.2.3:22":                   PortNotAllowed,
		"10.9.0.1:443":                  Denied,
		"localhost:80":                  AddressClass,
		"127.0.0.1:20001":               OwnListener,
		"metadata.google.internal:80":   AlwaysDenied,
		"elsewhere.example:443":         NotAllowed,
		"[::ffff:10.1.2.3]:5432":        AskFirst,
		"wiki.corp.example.evil.test:1": NotAllowed,
	} {
		d := s.Decide(targetOf(t, in))
		if d.Code != want || d.Allowed != (want == Allow) {
			t.Errorf("%s: got %v, want %v: %s", in, d.Code, want, d.Reason())
		}
	}
	target := targetOf(t, "wiki.corp.example:443")
	d := s.Decide(target)
	if want := `wiki.corp.example:443 is refused until an approver allows it: the rule "*.corp.example" (ask:1) says so`; d.Reason() != want {
		t.Errorf("got %s", d.Reason())
	}
	if !d.Liftable() || d.Source != "ask:1" {
		t.Errorf("got %+v", d)
	}
	yes, err := s.Approve(target, Origin{File: "approved by kim"})
	if err != nil {
		t.Fatal(err)
	}
	if d := yes.Decide(target); !d.Allowed || d.Source != "approved by kim" {
		t.Errorf("approved: %s", d.Reason())
	}
	if d := yes.DecideAddr(target, netip.MustParseAddr("10.0.0.1")); d.Code != AddressClass {
		t.Errorf("approved, at a private address: %s", d.Reason())
	}
	if d := yes.Decide(targetOf(t, "wiki.corp.example:80")); d.Code != AskFirst {
		t.Errorf("another port: %s", d.Reason())
	}
	if _, err := s.Approve(Target{}, Origin{}); err == nil {
		t.Error("an empty target is approved")
	}
	for _, line := range []string{"a.example private", "a.example tcp"} {
		if _, err := Compile(Lists{Ask: rulesOf(t, "ask", line)}, nil); err == nil || !strings.Contains(err.Error(), "ask:1") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// Asking about everything still asks about nothing that a rule denies, and not
// about what lies on this machine or on a private network.
func TestAskAny(t *testing.T) {
	s := askSet(t, "bad.example", "open.example\nodd.example 8443", "", true)
	for in, want := range map[string]Code{
		"open.example:443":   Allow,
		"odd.example:443":    AskFirst,
		"new.example:9":      AskFirst,
		"8.8.8.8:53":         AskFirst,
		"bad.example:443":    Denied,
		"10.0.0.5:443":       NotAllowed,
		"0.0.0.0:443":        AddressClass,
		"x.localhost:80":     NotAllowed,
		"169.254.169.254:80": AlwaysDenied,
		"127.0.0.1:20001":    OwnListener,
	} {
		if d := s.Decide(targetOf(t, in)); d.Code != want {
			t.Errorf("%s: got %v, want %v: %s", in, d.Code, want, d.Reason())
		}
	}
	d := s.Decide(targetOf(t, "odd.example:443"))
	if want := "odd.example:443 is refused until an approver allows it: the policy asks about every host that no rule allows"; d.Reason() != want || d.Rule != "" {
		t.Errorf("got %q %s", d.Rule, d.Reason())
	}
	if !s.Lists().AskAny {
		t.Error("the lists do not say so")
	}
}

func TestReporting(t *testing.T) {
	s := askSet(t, "bad.example\n198.51.100.0/24\n203.0.113.7\n9.9.9.9\n0.0.0.0/8", "open.example\nin.example private\n0.0.0.0", "ask.example", false).Reporting()
	for _, c := range []struct {
		in, addr       string
		allowed, would bool
		code           Code
	}{
		{"open.example:443", "", true, false, Allow},
		{"open.example:22", "", true, true, PortNotAllowed},
		{"new.example:443", "", true, true, NotAllowed},
		{"new.example:443", "140.82.112.5", true, true, NotAllowed},
		{"new.example:443", "10.0.0.1", false, false, AddressClass},
		{"new.example:443", "169.254.169.254", false, false, AlwaysDenied},
		{"new.example:443", "9.9.9.9", true, true, Denied},
		{"open.example:443", "9.9.9.9", true, true, Denied},
		{"in.example:443", "10.0.0.1", true, false, Allow},
		{"in.example:22", "10.0.0.1", false, false, AddressClass},
		{"bad.example:443", "", true, true, Denied},
		{"ask.example:443", "", true, true, AskFirst},
		{"8.8.8.8:53", "", true, true, NotAllowed},
		{"9.9.9.9:53", "", true, true, Denied},
		{"10.0.0.1:53", "", false, false, NotAllowed},
		{"0.0.0.0:53", "", false, false, Denied},
		{"localhost:80", "", false, false, NotAllowed},
		{"127.0.0.1:20001", "", false, false, OwnListener},
		{"metadata:80", "", false, false, AlwaysDenied},
	} {
		target := targetOf(t, c.in)
		d := s.Decide(target)
		if c.addr != "" {
			d = s.DecideAddr(target, netip.MustParseAddr(c.addr))
		}
		if d.Allowed != c.allowed || d.WouldDeny() != c.would || d.Code != c.code {
			t.Errorf("%s %s: got allowed %v, would %v, %v: %s", c.in, c.addr, d.Allowed, d.WouldDeny(), d.Code, d.Reason())
		}
	}
	d := s.Decide(targetOf(t, "bad.example:443"))
	if want := `not enforced, only reported: bad.example:443 is denied by the rule "bad.example" (deny:1); a deny rule beats every allow: only removing it there opens the host`; d.Reason() != want {
		t.Errorf("got %s", d.Reason())
	}
	more, err := s.Extend(rulesOf(t, "session", "new.example"))
	if err != nil {
		t.Fatal(err)
	}
	if d := more.Decide(targetOf(t, "new.example:443")); d.WouldDeny() || !more.Reports() {
		t.Errorf("extended: %s", d.Reason())
	}
	if d := Off().Reporting().Decide(targetOf(t, "open.example:443")); d.Allowed || d.Code != NetworkOff {
		t.Errorf("network off: %s", d.Reason())
	}
	if (*Set)(nil).Reporting().Decide(targetOf(t, "open.example:443")).Allowed {
		t.Error("no policy reports")
	}
}

func TestRefuse(t *testing.T) {
	target := targetOf(t, "a.example:443")
	d := Refuse(target, TooManyTunnels, "64 tunnels are open\nin this session; close some")
	if got := d.Reason(); got != "a.example:443 is refused: 64 tunnels are open?in this session; close some" || d.Code.String() != "too_many_tunnels" || d.Allowed || d.Liftable() {
		t.Errorf("got %v %s", d.Code, got)
	}
	if d := Refuse(target, Allow, "no"); d.Allowed || d.Code == Allow {
		t.Errorf("got %v", d.Code)
	}
}

// genLine draws a rule of any kind.
var genLine = rapid.Custom(func(t *rapid.T) string {
	text := rapid.OneOf(genPattern, rapid.Map(genV4, netip.Addr.String), rapid.SampledFrom([]string{"localhost", "metadata", "10.0.0.0/8", "0.0.0.0/0"})).Draw(t, "host")
	if rapid.Bool().Draw(t, "with a port") {
		text += " 443"
	}
	return text
})

// Whatever the lists are, neither an approver nor report mode opens what is not
// theirs to open, and both leave alone what the lists decide by themselves.
func TestPropAskAndReport(t *testing.T) {
	lines := rapid.SliceOfN(genLine, 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		l := Lists{
			AlwaysDeny: mustRules(t, lines.Draw(t, "always"), "always"),
			Deny:       mustRules(t, lines.Draw(t, "deny"), "deny"),
			Allow:      mustRules(t, lines.Draw(t, "allow"), "allow"),
		}
		compile := func() *Set {
			s, err := Compile(l, func(a netip.AddrPort) bool { return a.Port() == 8080 && a.Addr().IsLoopback() })
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		plain := compile()
		l.Ask, l.AskAny = mustRules(t, lines.Draw(t, "ask"), "ask"), rapid.Bool().Draw(t, "any")
		asking := compile()
		reporting := asking.Reporting()
		target := mustTarget(t, rapid.OneOf(genName, rapid.Map(genV4, netip.Addr.String), rapid.Just("localhost")).Draw(t, "host"), genPort.Draw(t, "port"))
		answer := genV4.Draw(t, "answer")
		if a, ok := target.Host().Addr(); ok {
			answer = a
		}
		yes, err := asking.Approve(target, Origin{File: "approver"})
		if err != nil {
			t.Fatal(err)
		}
		for i, before := range []Decision{plain.Decide(target), plain.DecideAddr(target, answer)} {
			ask := []Decision{asking.Decide(target), asking.DecideAddr(target, answer)}[i]
			approved := []Decision{yes.Decide(target), yes.DecideAddr(target, answer)}[i]
			report := []Decision{reporting.Decide(target), reporting.DecideAddr(target, answer)}[i]
			if before.Allowed != ask.Allowed {
				t.Fatalf("%v: asking changed %v to %v", target, before.Code, ask.Code)
			}
			if ask.Code == AskFirst && !before.Liftable() {
				t.Fatalf("%v: %v is asked about", target, before.Code)
			}
			switch before.Code {
			case AlwaysDenied, OwnListener, AddressClass:
				if ask.Allowed || approved.Allowed || report.Allowed || ask.Code == AskFirst {
					t.Fatalf("%v: %v: asking %v, approved %v, reporting %v", target, before.Code, ask.Code, approved.Code, report.Code)
				}
			case Denied:
				if approved.Allowed || ask.Code != Denied {
					t.Fatalf("%v is denied: asking %v, approved %v", target, ask.Code, approved.Code)
				}
			case Allow:
				if !report.Allowed || report.WouldDeny() || report.Code != ask.Code {
					t.Fatalf("%v is allowed: reporting %v", target, report.Code)
				}
			default: // what no rule names
				if ask.Allowed || before.Allowed {
					t.Fatalf("%v: %v: asking %v", target, before.Code, ask.Code)
				}
			}
			if report.WouldDeny() && !report.Allowed {
				t.Fatalf("%v would be denied and is", target)
			}
		}
		// The address that is dialled is never one that enforcing leaves closed.
		class, _ := Classify(answer)
		if d := reporting.DecideAddr(target, answer); d.WouldDeny() && class != Public && len(l.Allow)+len(l.Ask) == 0 {
			t.Fatalf("%v at %v is let through by nothing", target, answer)
		}
	})
}
