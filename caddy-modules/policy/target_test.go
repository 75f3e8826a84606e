package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"name", "api.github.com:443", "api.github.com:443"},
		{"case and root dot", "API.GitHub.com.:443", "api.github.com:443"},
		{"IPv4", "192.0.2.1:80", "192.0.2.1:80"},
		{"IPv6", "[2001:DB8::1]:65535", "[2001:db8::1]:65535"},
		{"mapped", "[::ffff:192.0.2.1]:1", "192.0.2.1:1"},
		{"link-local with zone", "[fe80::1%25eth0]:443", "[fe80::1]:443"},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, err := ParseTarget(c.in, SchemeTLS)
			if err != nil {
				t.Fatal(err)
			}
			if target.String() != c.want || target.Scheme() != SchemeTLS || target.IsZero() {
				t.Errorf("got %v %v, want %s", target, target.Scheme(), c.want)
			}
			again, err := ParseTarget(target.String(), SchemeTLS)
			if err != nil || again != target {
				t.Errorf("%q reads back as %v, %v", target, again, err)
			}
			// An absolute-form URI may carry the same authority.
			or, err := ParseTargetOr(c.in, 80, SchemeTLS)
			if err != nil || or != target {
				t.Errorf("as part of a URI: %v, %v", or, err)
			}
		})
	}
}

func TestParseTargetMalformed(t *testing.T) {
	for _, c := range []struct{ name, in, reason string }{
		{"empty", "", "no host"},
		{"no port", "a.com", "HOST:PORT"},
		{"no port behind brackets", "[::1]", "HOST:PORT"},
		{"empty port", "a.com:", "empty"},
		{"empty host", ":443", "no host"},
		{"colon alone", ":", "no host"},
		{"port 0", "a.com:0", "starts with 0"},
		{"leading zero", "a.com:0443", "starts with 0"},
		{"port over the end", "a.com:65536", "65535"},
		{"port that wraps to 443", "a.com:4294967739", "65535"},
		{"port over 64 bits", "a.com:18446744073709552059", "65535"},
		{"negative", "a.com:-1", "digits"},
		{"signed", "a.com:+443", "digits"},
		{"hex port", "a.com:0x1bb", "digits"},
		{"underscore in port", "a.com:4_43", "digits"},
		{"Arabic digits", "a.com:٤٤٣", "digits"},
		{"blank before port", "a.com: 443", "digits"},
		{"service name", "a.com:https", "digits"},
		{"path behind port", "a.com:443/", "digits"},
		{"two ports", "a.com:443:80", "colon"},
		{"two ports behind brackets", "[::1]:443:80", "bracket"},
		{"user", "evil.com@a.com:443", "at sign"},
		{"user and password", "u:p@a.com:443", "colon"},
		{"absolute-form", "http://a.com:443/", "colon"},
		{"absolute-form without path", "http://a.com:443", "colon"},
		{"path", "/path", "byte"},
		{"asterisk", "*", "star"},
		{"bare IPv6", "::1:443", "colon"},
		{"bare long IPv6", "1:2:3:4:5:6:7:8:443", "colon"},
		{"unclosed bracket", "[::1:443", "bracket"},
		{"bracketed name", "[evil.com]:443", "brackets"},
		{"text between bracket and port", "[::1]a:443", "bracket"},
		{"zone with the allowed suffix", "[::1%25.allowed.com]:443", "zone"},
		{"port within brackets", "[::1:443]", "HOST:PORT"},
		{"NUL", "evil.com\x00.a.com:443", "NUL"},
		{"full-width colon", "a.com：443", "ASCII"},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, err := ParseTarget(c.in, SchemeTCP)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("got %v, %v; want a SyntaxError", target, err)
			}
			if !target.IsZero() {
				t.Errorf("malformed, and still the target %v", target)
			}
			if !strings.Contains(syntax.Reason, c.reason) {
				t.Errorf("reason %q does not say %q", syntax.Reason, c.reason)
			}
			wantOneLine(t, err.Error())
		})
	}
}

func TestParseTargetOr(t *testing.T) {
	target, err := ParseTargetOr("[2001:db8::1]", 80, SchemeHTTP)
	if err != nil || target.String() != "[2001:db8::1]:80" {
		t.Errorf("no port: %v, %v", target, err)
	}
	for _, in := range []string{"a.com:", "a.com:0", ":80", "", "a.com:x"} {
		if target, err := ParseTargetOr(in, 80, SchemeHTTP); err == nil {
			t.Errorf("%q: got %v", in, target)
		}
	}
	if _, err := ParseTargetOr("a.com", 0, SchemeHTTP); err == nil {
		t.Error("a default of port 0 passes")
	}
}

func TestNewTarget(t *testing.T) {
	h, err := ParseHost("a.com")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewTarget(h, 0, SchemeTCP); err == nil {
		t.Error("port 0 passes: a kernel would pick another")
	}
	if _, err := NewTarget(Host{}, 443, SchemeTCP); err == nil {
		t.Error("the zero host passes")
	}
	if _, err := NewTarget(HostFromAddr(netip.Addr{}), 443, SchemeTCP); err == nil {
		t.Error("an invalid address passes")
	}
	a, _ := NewTarget(h, 443, SchemeTCP)
	b, _ := ParseTarget("A.com.:443", SchemeTCP)
	if a != b {
		t.Errorf("%v and %v differ", a, b)
	}
}

func TestSchemeString(t *testing.T) {
	for s, want := range map[Scheme]string{SchemeTCP: "tcp", SchemeHTTP: "http", SchemeTLS: "tls", 9: "scheme(9)"} {
		if s.String() != want {
			t.Errorf("got %s, want %s", s, want)
		}
	}
}
