package policy

import (
	"strings"
	"testing"
)

// A host that is asked about on other ports is told so, where no rule allows any: who
// looks for a port on which a name may be looked up finds it by that.
func TestAskedAboutElsewhere(t *testing.T) {
	for _, c := range []struct {
		name, allow, ask, target string
		code                     Code
		rule, says               string
	}{
		{"one port", "", "a.corp.example 8443", "a.corp.example:443", PortNotAllowed, "a.corp.example 8443", "asks about port 8443 only"},
		{"several", "", "a.corp.example 22 8443", "a.corp.example:443", PortNotAllowed, "a.corp.example 22 8443", "asks about ports 22 and 8443 only"},
		{"many", "", "a.corp.example 1 2 3 4 5 6 7 8 9 10", "a.corp.example:443", PortNotAllowed, "a.corp.example 1 2 3 4 5 6 7 8 9 10", "and others only"},
		{"a wildcard", "", "*.corp.example 8443", "a.corp.example:443", PortNotAllowed, "*.corp.example 8443", "asks about port 8443"},
		{"this port", "", "a.corp.example 443 8443", "a.corp.example:443", AskFirst, "a.corp.example 443 8443", "until an approver"},
		{"another name", "", "b.corp.example 8443", "a.corp.example:443", NotAllowed, "", "no rule allows it"},
		{"allowed elsewhere", "*.corp.example 9000", "a.corp.example 8443", "a.corp.example:443", PortNotAllowed, "*.corp.example 9000", "allows port 9000 only"},
		{"allowed here", "*.corp.example 443", "a.corp.example 8443", "a.corp.example:443", Allow, "*.corp.example 443", "is allowed"},
	} {
		s, err := Compile(Lists{Allow: rulesOf(t, "allow", c.allow), Ask: rulesOf(t, "ask", c.ask)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := s.Decide(targetOf(t, c.target))
		if d.Code != c.code || d.Rule != c.rule || !strings.Contains(d.Reason(), c.says) {
			t.Errorf("%s: %s by %q: %s", c.name, d.Code, d.Rule, d.Reason())
		}
	}
}

func TestTunnelTarget(t *testing.T) {
	for _, c := range []struct {
		host string
		port uint16
		want Scheme
	}{
		{"a.corp.example", 443, SchemeTLS},
		{"a.corp.example", 80, SchemeHTTP},
		{"a.corp.example", 8443, SchemeTCP},
		{"192.0.2.1", 443, SchemeTLS},
		{"192.0.2.1", 80, SchemeTCP},
		{"2001:db8::1", 22, SchemeTCP},
	} {
		h, err := ParseHost(c.host)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := TunnelTarget(h, c.port); err != nil || got.Scheme() != c.want || got.Host() != h || got.Port() != c.port {
			t.Errorf("%s %d: %s %s, %v", c.host, c.port, got, got.Scheme(), err)
		}
	}
	if _, err := TunnelTarget(Host{}, 443); err == nil {
		t.Error("a tunnel to nowhere")
	}
}

func TestThisMachine(t *testing.T) {
	for text, want := range map[string]bool{
		"localhost": true, "x.localhost": true, "LOCALHOST.": true,
		"localhost.example": false, "notlocalhost": false, "127.0.0.1": false, "::1": false,
	} {
		h, err := ParseHost(text)
		if err != nil {
			t.Fatal(err)
		}
		if h.ThisMachine() != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
	if (Host{}).ThisMachine() {
		t.Error("no host is this machine")
	}
}
