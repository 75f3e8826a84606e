package policy

import (
	"net/netip"
	"strings"
	"testing"
)

// rulesOf parses one rule a line, with the file "allow", "deny" or "always".
func rulesOf(tb testing.TB, file, lines string) []Rule {
	tb.Helper()
	rules, err := ParseList(strings.NewReader(lines), file)
	if err != nil {
		tb.Fatal(err)
	}
	return rules
}

func setOf(tb testing.TB, always, denied, allowed string) *Set {
	tb.Helper()
	s, err := Compile(Lists{
		AlwaysDeny: rulesOf(tb, "always", always),
		Deny:       rulesOf(tb, "deny", denied),
		Allow:      rulesOf(tb, "allow", allowed),
	}, ownListeners)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func targetOf(tb testing.TB, authority string) Target {
	tb.Helper()
	t, err := ParseTarget(authority, SchemeTCP)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

const (
	testAlways = "blocked.example\n*.internal.example\n203.0.113.0/24\n"
	testDeny   = "statsig.anthropic.com\n*.sentry.io\nmail.example.com 25\n10.9.0.0/16\ntracker.*.example.net\n"
	testAllow  = `
api.github.com
github.com 22 443
*.anthropic.com 443
bedrock.*.amazonaws.com
a.b.*.c.example
*.sentry.io
mail.example.com 25 443
intranet
db.corp.example 5432 private
*.dev.example 443 private
ssh.example.com 22 tcp
localhost 3000 private
app.localhost 3000 private
10.0.0.5
10.9.0.1
10.20.0.0/16 5432
127.0.0.1
::1
0.0.0.0
224.0.0.1
198.51.100.0/24
0.0.0.0/0 8080
2606:4700::/32
169.254.169.254
metadata.google.internal
64:ff9b::a00:7
tracker.eu.example.net
`
)

func TestDecide(t *testing.T) {
	s := setOf(t, testAlways, testDeny, testAllow)
	for _, c := range []struct {
		in     string
		code   Code
		rule   string
		source string
	}{
		{"api.github.com:443", Allow, "api.github.com", "allow:2"},
		{"api.github.com:80", Allow, "api.github.com", "allow:2"},
		{"API.GITHUB.COM.:443", Allow, "api.github.com", "allow:2"},
		{"api.github.com:22", PortNotAllowed, "api.github.com", "allow:2"},
		{"github.com:22", Allow, "github.com 22 443", "allow:3"},
		{"github.com:80", PortNotAllowed, "github.com 22 443", "allow:3"},
		{"www.github.com:443", NotAllowed, "", ""},
		{"api.github.com.evil.com:443", NotAllowed, "", ""},
		{"api-github.com:443", NotAllowed, "", ""},
		{"x.api.github.com:443", NotAllowed, "", ""},

		{"api.anthropic.com:443", Allow, "*.anthropic.com 443", "allow:4"},
		{"a.b.c.anthropic.com:443", Allow, "*.anthropic.com 443", "allow:4"},
		{"anthropic.com:443", NotAllowed, "", ""},
		{"evilanthropic.com:443", NotAllowed, "", ""},
		{"x.evilanthropic.com:443", NotAllowed, "", ""},
		{"api.anthropic.com:80", PortNotAllowed, "*.anthropic.com 443", "allow:4"},
		{"statsig.anthropic.com:443", Denied, "statsig.anthropic.com", "deny:1"},
		{"x.statsig.anthropic.com:443", Allow, "*.anthropic.com 443", "allow:4"},

		{"bedrock.us-east-1.amazonaws.com:443", Allow, "bedrock.*.amazonaws.com", "allow:5"},
		{"bedrock.a.b.amazonaws.com:443", NotAllowed, "", ""},
		{"bedrock.amazonaws.com:443", NotAllowed, "", ""},
		{"xbedrock.us-east-1.amazonaws.com:443", NotAllowed, "", ""},
		{"x.bedrock.us-east-1.amazonaws.com:443", NotAllowed, "", ""},
		{"us-east-1.amazonaws.com:443", NotAllowed, "", ""},
		{"a.b.x.c.example:443", Allow, "a.b.*.c.example", "allow:6"},
		{"b.x.c.example:443", NotAllowed, "", ""},
		{"a.x.c.example:443", NotAllowed, "", ""},
		{"a.b.c.example:443", NotAllowed, "", ""},
		{"tracker.eu.example.net:443", Denied, "tracker.*.example.net", "deny:5"},

		{"o1.ingest.sentry.io:443", Denied, "*.sentry.io", "deny:2"},
		{"mail.example.com:25", Denied, "mail.example.com 25", "deny:3"},
		{"mail.example.com:443", Allow, "mail.example.com 25 443", "allow:8"},
		{"blocked.example:443", AlwaysDenied, "blocked.example", "always:1"},
		{"a.internal.example:9", AlwaysDenied, "*.internal.example", "always:2"},
		{"metadata.google.internal:80", AlwaysDenied, "metadata.google.internal", "built-in"},
		{"Metadata.:80", AlwaysDenied, "metadata", "built-in"},
		{"instance-data.ec2.internal:80", AlwaysDenied, "instance-data.ec2.internal", "built-in"},

		{"intranet:80", Allow, "intranet", "allow:9"},
		{"extranet:80", NotAllowed, "", ""},
		{"localhost:3000", Allow, "localhost 3000 private", "allow:13"},
		{"LOCALHOST.:3000", Allow, "localhost 3000 private", "allow:13"},
		{"app.localhost:3000", Allow, "app.localhost 3000 private", "allow:14"},
		{"x.localhost:3000", NotAllowed, "", ""},
		{"localhost:20001", OwnListener, "", ""},
		{"x.localhost:20001", OwnListener, "", ""},
		{"notlocalhost:20001", NotAllowed, "", ""},

		{"10.0.0.5:5432", Allow, "10.0.0.5", "allow:15"},
		{"[::ffff:10.0.0.5]:5432", Allow, "10.0.0.5", "allow:15"},
		{"10.0.0.6:443", NotAllowed, "", ""},
		{"10.9.0.1:443", Denied, "10.9.0.0/16", "deny:4"},
		{"[::ffff:a09:1]:443", Denied, "10.9.0.0/16", "deny:4"},
		{"[64:ff9b::a09:1]:443", Denied, "10.9.0.0/16", "deny:4"},
		{"[64:ff9b:1::a09:1]:443", Denied, "10.9.0.0/16", "deny:4"},
		{"[2002:a09:1::1]:443", Denied, "10.9.0.0/16", "deny:4"},
		{"[::a09:1]:443", Denied, "10.9.0.0/16", "deny:4"},
		{"[::ffff:0:a09:1]:443", Denied, "10.9.0.0/16", "deny:4"},
		{"[2001:0:a09:1::]:443", Denied, "10.9.0.0/16", "deny:4"},
		{"[2001::f5f6:fffe]:443", Denied, "10.9.0.0/16", "deny:4"},
		{"10.20.1.1:5432", Allow, "10.20.0.0/16 5432", "allow:17"},
		{"10.20.1.1:443", PortNotAllowed, "10.20.0.0/16 5432", "allow:17"},
		{"203.0.113.9:443", AlwaysDenied, "203.0.113.0/24", "always:3"},
		{"[64:ff9b::cb00:7109]:443", AlwaysDenied, "203.0.113.0/24", "always:3"},
		{"198.51.100.7:443", Allow, "198.51.100.0/24", "allow:22"},

		{"127.0.0.1:3000", Allow, "127.0.0.1", "allow:18"},
		{"127.0.0.1:20001", OwnListener, "", ""},
		{"[::ffff:127.0.0.1]:20001", OwnListener, "", ""},
		{"[::1]:20001", OwnListener, "", ""},
		{"[::1]:3000", Allow, "::1", "allow:19"},
		{"127.0.0.2:3000", NotAllowed, "", ""},
		{"127.0.0.2:20001", OwnListener, "", ""},
		{"0.0.0.0:20001", OwnListener, "", ""},
		{"[::]:20001", OwnListener, "", ""},
		{"[::127.0.0.1]:20001", OwnListener, "", ""},
		{"[64:ff9b::7f00:1]:20001", OwnListener, "", ""},
		{lanIP + ":20001", OwnListener, "", ""},

		// A listed address of a kind that is never dialled.
		{"0.0.0.0:80", AddressClass, "0.0.0.0", "allow:20"},
		{"224.0.0.1:80", AddressClass, "224.0.0.1", "allow:21"},
		{"255.255.255.255:80", AddressClass, "", ""},
		{"[ff02::1]:80", AddressClass, "", ""},
		{"169.254.169.254:80", AlwaysDenied, "169.254.169.254", "built-in"},
		{"169.254.1.1:80", AlwaysDenied, "169.254.0.0/16", "built-in"},
		{"168.63.129.16:80", AlwaysDenied, "168.63.129.16", "built-in"},
		{"[64:ff9b::a83f:8110]:80", AlwaysDenied, "168.63.129.16", "built-in"},
		{"[fe80::1%25eth0]:443", AlwaysDenied, "fe80::/10", "built-in"},
		{"[fd00:ec2::254]:80", AlwaysDenied, "fd00:ec2::/32", "built-in"},

		// 0.0.0.0/0 opens what is public, and nothing of what is not.
		{"8.8.8.8:8080", Allow, "0.0.0.0/0 8080", "allow:23"},
		{"10.1.1.1:8080", NotAllowed, "", ""},
		{"127.0.0.9:8080", NotAllowed, "", ""},
		{"8.8.8.8:443", PortNotAllowed, "0.0.0.0/0 8080", "allow:23"},
		{"[2606:4700::1]:443", Allow, "2606:4700::/32", "allow:24"},
		{"[64:ff9b::a00:7]:443", Allow, "64:ff9b::a00:7", "allow:27"},
		{"[64:ff9b::a00:5]:443", NotAllowed, "", ""},
		{"[64:ff9b::808:808]:8080", NotAllowed, "", ""},
	} {
		target := targetOf(t, c.in)
		d := s.Decide(target)
		if d.Code != c.code || d.Rule != c.rule || d.Source != c.source || d.Allowed != (c.code == Allow) {
			t.Errorf("%s: got %v %v %q from %q, want %v %q from %q", c.in, d.Allowed, d.Code, d.Rule, d.Source, c.code, c.rule, c.source)
		}
		if d.Target() != target {
			t.Errorf("%s: decision is about %v", c.in, d.Target())
		}
		// An address needs no lookup: the last word is the first.
		if a, ok := target.Host().Addr(); ok {
			if again := s.DecideAddr(target, a); again.Allowed != d.Allowed || again.Code != d.Code {
				t.Errorf("%s: at the address %v, before %v", c.in, again.Code, d.Code)
			}
		}
		wantOneLine(t, d.Reason())
	}
}

func TestDecideAddr(t *testing.T) {
	s := setOf(t, testAlways, testDeny, testAllow)
	for _, c := range []struct {
		in, addr string
		code     Code
		rule     string
	}{
		{"api.github.com:443", "140.82.112.5", Allow, "api.github.com"},
		{"api.github.com:443", "2606:4700::1", Allow, "api.github.com"},
		{"api.github.com:443", "64:ff9b::8c52:7005", Allow, "api.github.com"},
		{"api.github.com:443", "::ffff:140.82.112.5", Allow, "api.github.com"},
		{"api.github.com:443", "10.0.0.5", AddressClass, "api.github.com"},
		{"api.github.com:443", "::ffff:10.0.0.5", AddressClass, "api.github.com"},
		{"api.github.com:443", "127.0.0.1", AddressClass, "api.github.com"},
		{"api.github.com:443", "0.0.0.0", AddressClass, "api.github.com"},
		{"api.github.com:443", "::", AddressClass, "api.github.com"},
		{"api.github.com:443", "fd12:3456::1", AddressClass, "api.github.com"},
		{"api.github.com:443", "::1%eth0", AddressClass, "api.github.com"},
		{"api.github.com:443", "64:ff9b:1::8c52:7005", AddressClass, "api.github.com"},
		{"api.github.com:443", "169.254.169.254", AlwaysDenied, "169.254.169.254"},
		{"api.github.com:443", "::ffff:169.254.169.254%.api.github.com", AlwaysDenied, "169.254.169.254"},
		{"api.github.com:443", "2002:a9fe:a9fe::1", AlwaysDenied, "169.254.169.254"},
		{"api.github.com:443", "168.63.129.16", AlwaysDenied, "168.63.129.16"},
		{"api.github.com:443", "10.9.0.1", Denied, "10.9.0.0/16"},
		{"api.github.com:443", "203.0.113.9", AlwaysDenied, "203.0.113.0/24"},
		// Nobody allowed the name.
		{"evil.com:443", "140.82.112.5", NotAllowed, ""},
		{"api.github.com:22", "140.82.112.5", PortNotAllowed, "api.github.com"},
		// The flag private.
		{"db.corp.example:5432", "10.0.0.9", Allow, "db.corp.example 5432 private"},
		{"db.corp.example:5432", "127.0.0.1", Allow, "db.corp.example 5432 private"},
		{"db.corp.example:5432", "fd12:3456::1", Allow, "db.corp.example 5432 private"},
		{"db.corp.example:5432", "100.64.0.1", Allow, "db.corp.example 5432 private"},
		{"db.corp.example:5432", "140.82.112.5", Allow, "db.corp.example 5432 private"},
		{"db.corp.example:5432", "10.9.0.1", Denied, "10.9.0.0/16"},
		{"db.corp.example:5432", "169.254.169.254", AlwaysDenied, "169.254.169.254"},
		{"db.corp.example:5432", "100.100.100.200", AlwaysDenied, "100.100.100.200"},
		{"db.corp.example:5432", "fd00:ec2::254", AlwaysDenied, "fd00:ec2::/32"},
		{"db.corp.example:5432", "0.0.0.0", AddressClass, "db.corp.example 5432 private"},
		{"db.corp.example:5432", "64:ff9b::a00:9", AddressClass, "db.corp.example 5432 private"},
		{"db.corp.example:5432", "224.0.0.1", AddressClass, "db.corp.example 5432 private"},
		{"a.dev.example:443", "192.168.1.1", Allow, "*.dev.example 443 private"},
		{"localhost:3000", "127.0.0.1", Allow, "localhost 3000 private"},
		{"localhost:3000", "::1", Allow, "localhost 3000 private"},
		{"localhost:3000", "10.0.0.5", AddressClass, "localhost 3000 private"},
		{"localhost:3000", "140.82.112.5", AddressClass, "localhost 3000 private"},
		// An address is itself and nothing else.
		{"10.0.0.5:443", "10.0.0.5", Allow, "10.0.0.5"},
		{"10.0.0.5:443", "::ffff:10.0.0.5", Allow, "10.0.0.5"},
		{"10.0.0.5:443", "10.0.0.6", AddressClass, "10.0.0.5"},
	} {
		target, a := targetOf(t, c.in), netip.MustParseAddr(c.addr)
		d := s.DecideAddr(target, a)
		if d.Code != c.code || d.Rule != c.rule || d.Allowed != (c.code == Allow) {
			t.Errorf("%s at %s: got %v %v %q, want %v %q", c.in, c.addr, d.Allowed, d.Code, d.Rule, c.code, c.rule)
		}
		if c.code != NotAllowed && c.code != PortNotAllowed {
			if at, _ := d.Addr(); at != canonical(a) {
				t.Errorf("%s at %s: decision is about %v", c.in, c.addr, at)
			}
		}
		wantOneLine(t, d.Reason())
	}

	// An allowed name must not lead to a listener of the appliance, by any of the
	// addresses that reach it.
	private := setOf(t, "", "", "x.example 20001 private")
	for _, a := range []string{"127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1", "::ffff:0.0.0.0", lanIP, "::127.0.0.1", "64:ff9b::7f00:1", "::1%lo"} {
		if d := private.DecideAddr(targetOf(t, "x.example:20001"), netip.MustParseAddr(a)); d.Code != OwnListener || d.Allowed {
			t.Errorf("own listener at %s: got %v", a, d.Code)
		}
	}
	if d := s.DecideAddr(targetOf(t, "api.github.com:443"), netip.Addr{}); d.Allowed || d.Code != AddressClass {
		t.Errorf("no address: got %v", d.Code)
	}
}

// Everything that has not been made by the package refuses.
func TestZeroValuesRefuse(t *testing.T) {
	s := setOf(t, "", "", "0.0.0.0/0 443\nexample.com")
	good := targetOf(t, "example.com:443")
	public := netip.MustParseAddr("140.82.112.5")
	var none *Set
	for name, d := range map[string]Decision{
		"zero target":              s.Decide(Target{}),
		"zero target at address":   s.DecideAddr(Target{}, public),
		"nil set":                  none.Decide(good),
		"nil set at address":       none.DecideAddr(good, public),
		"nil set and zero target":  none.Decide(Target{}),
		"zero decision":            {},
		"empty policy":             setOf(t, "", "", "").Decide(good),
		"network off":              Off().Decide(good),
		"network off, own address": Off().Decide(targetOf(t, "127.0.0.1:20001")),
		"policy gone":              Closed("the policy \"agent\" left the configuration").DecideAddr(good, public),
	} {
		if d.Allowed || d.TCP || d.Code == Allow {
			t.Errorf("%s: allowed", name)
		}
		wantOneLine(t, d.Reason())
	}
	if d := none.Decide(good); d.Code != PolicyGone {
		t.Errorf("nil set: got %v", d.Code)
	}
	if d := Off().Decide(good); d.Code != NetworkOff {
		t.Errorf("network off: got %v", d.Code)
	}
}

func TestTCPFlag(t *testing.T) {
	s := setOf(t, "", "", "ssh.example.com 22 443 tcp\n*.example.com 443\nx.y.example.com 443\n*.y.example.com 443 tcp\n10.0.0.5\n10.0.0.5 22 tcp\n10.0.0.6 tcp\n10.0.0.6 22")
	for in, want := range map[string]bool{
		"ssh.example.com:22":   true,
		"ssh.example.com:443":  true,
		"www.example.com:443":  false,
		"x.y.example.com:443":  true, // rules add up
		"10.0.0.5:22":          true,
		"10.0.0.5:443":         false,
		"10.0.0.6:22":          true,
		"10.0.0.6:443":         true,
		"ssh.example.com:80":   false, // and refused
		"ssh.example.com:8080": false,
	} {
		d := s.Decide(targetOf(t, in))
		if d.TCP != want {
			t.Errorf("%s: TCP is %v (%s)", in, d.TCP, d.Reason())
		}
		if d.TCP && !strings.HasSuffix(d.Rule, "tcp") {
			t.Errorf("%s: TCP by the rule %q", in, d.Rule)
		}
	}
}
