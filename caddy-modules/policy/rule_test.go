package policy

import (
	"errors"
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"exact", "api.github.com", "api.github.com"},
		{"trimmed, lower-cased, without root dot", "  API.GitHub.com.\t", "api.github.com"},
		{"ports sorted and once", "github.com 443 22 443", "github.com 22 443"},
		{"flags last and once", "db.corp.example tcp 5432 private tcp", "db.corp.example 5432 private tcp"},
		{"single label", "intranet", "intranet"},
		{"underscore", "_x.example.com", "_x.example.com"},
		{"A-label", "xn--exmple-cua.com", "xn--exmple-cua.com"},
		{"leading wildcard", "*.EXAMPLE.com. 443", "*.example.com 443"},
		{"middle wildcard", "bedrock.*.amazonaws.com", "bedrock.*.amazonaws.com"},
		{"middle wildcard under a top-level domain", "a.*.com", "a.*.com"},
		{"middle wildcard deep", "a.b.*.c.d.example", "a.b.*.c.d.example"},
		{"IPv4", "10.0.0.5 5432", "10.0.0.5 5432"},
		{"IPv6", "2001:DB8:0::1", "2001:db8::1"},
		{"IPv6 in brackets", "[::1]", "::1"},
		{"mapped", "::ffff:10.0.0.5", "10.0.0.5"},
		{"private says nothing of an address", "10.0.0.5 private", "10.0.0.5"},
		{"IPv4 prefix", "10.0.0.0/8", "10.0.0.0/8"},
		{"IPv6 prefix", "fc00::/7 443", "fc00::/7 443"},
		{"mapped prefix", "::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{"prefix of one address", "10.0.0.5/32", "10.0.0.5"},
		{"all of IPv4", "0.0.0.0/0", "0.0.0.0/0"},
		{"localhost", "localhost 3000 private", "localhost 3000 private"},
		{"longest wildcard", "*." + strings.Repeat("a.", 125) + "b", "*." + strings.Repeat("a.", 125) + "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := Origin{File: "x.list", Line: 7}
			r, err := ParseRule(c.in, from)
			if err != nil {
				t.Fatal(err)
			}
			if r.String() != c.want || r.Origin != from {
				t.Errorf("got %q from %v, want %q", r, r.Origin, c.want)
			}
			again, err := ParseRule(r.String(), from)
			if err != nil || again.String() != r.String() {
				t.Errorf("canonical text %q reads back as %q, %v", r, again, err)
			}
		})
	}
}

func TestParseRuleRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, reason string }{
		{"empty", "", "no host"},
		{"blanks", " \t ", "no host"},
		{"star", "*", "every host"},
		{"star and root dot", "*.", "every host"},
		{"star over a top-level domain", "*.com", "top-level domain"},
		{"star over a numeric one", "*.123", "top-level domain"},
		{"two stars", "a.*.*.com", "more than one star"},
		{"leading and middle star", "*.foo.*.com", "more than one star"},
		{"double star", "**.example.com", "more than one star"},
		{"star glued to the suffix", "*example.com", "glued"},
		{"star glued on the left", "bed*rock.us-east-1.amazonaws.com", "glued"},
		{"star glued on the right", "bedrock.*x.amazonaws.com", "glued"},
		{"trailing star", "api.github.*", "ends in a star"},
		{"trailing star of two labels", "api.*", "ends in a star"},
		{"empty label behind the star", "*..example.com", "empty label"},
		{"empty label", "example..com", "empty label"},
		{"two dots at the end", "example.com..", "empty label"},
		{"two dots at the end, under a star", "*.example.com..", "empty label"},
		{"two dots at the end, star within", "a.*.example.com..", "empty label"},
		{"a top-level domain and two dots under a star", "*.com..", "empty label"},
		{"leading dot", ".example.com", "*.example.com"},
		{"star over IPv4 text", "*.254.169.254", "IPv4"},
		{"star over short IPv4 text", "*.0.0.1", "IPv4"},
		{"star within IPv4", "10.*.0.5", "IPv4"},
		{"star over hex IPv4", "*.0x7f.0x1", "IPv4"},
		{"star over numeric top-level domain", "*.foo.123", "IPv4"},
		{"numeric top-level domain", "foo.123", "IPv4"},
		{"star over localhost", "*.localhost", "top-level domain"},
		{"star within localhost", "*.dev.localhost", "localhost"},
		{"middle star within localhost", "a.*.localhost", "localhost"},
		{"path", "example.com/path", "CIDR"},
		{"URL", "https://example.com", "URL"},
		{"port in the host", "example.com:443", `"example.com 443"`},
		{"port behind brackets", "[::1]:443", `"::1 443"`},
		{"port behind a wildcard", "*.example.com:443", `"*.example.com 443"`},
		{"service name in the host", "example.com:https", "IPv6"},
		{"user", "user@example.com", "at sign"},
		{"line break", "evil.com\nhttp_access allow all", "control byte"},
		{"carriage return", "evil.com\r", "control byte"},
		{"NUL", "evil.com\x00.a.com", "control byte"},
		{"comment character", "example.com#x", "number sign"},
		{"comment", "example.com # why", "neither a port"},
		{"placeholder", "{$HOME}.example.com", "placeholder"},
		{"runtime placeholder", "{env.HOST}", "placeholder"},
		{"character class", "[a-z]pi.example.com", "glob"},
		{"question mark", "a?i.example.com", "glob"},
		{"regular expression", `^api\.example\.com$`, "placeholder"},
		{"negation", "!example.com", "byte"},
		{"comma", "a.com,b.com", "byte"},
		{"two hosts", "a.com b.com", "neither a port"},
		{"unknown flag", "a.com udp", "neither a port"},
		{"flag in capitals", "a.com TCP", "neither a port"},
		{"flag alone is a host", "private 443 443x", "digits"},
		{"port 0", "a.com 0", "starts with 0"},
		{"port too high", "a.com 65536", "65535"},
		{"port range", "a.com 80-90", "digits"},
		{"label too long", strings.Repeat("a", 64) + ".com", "63 bytes"},
		{"wildcard too long to match", "*." + strings.Repeat("a.", 126) + "b", "253 bytes"},
		{"hyphen", "-a.example.com", "hyphen"},
		{"hyphen under a star", "*.a-.example.com", "hyphen"},
		{"odd IPv4", "127.1", "IPv4"},
		{"IPv4 with a leading zero", "10.0.0.05", "IPv4"},
		{"decimal IPv4", "2852039166", "IPv4"},
		{"zone", "fe80::1%eth0", "zone"},
		{"zone on loopback", "::1%.allowed.com", "zone"},
		{"host bits", "10.0.0.5/8", `"10.0.0.0/8"`},
		{"prefix too long", "10.0.0.0/33", "CIDR"},
		{"odd prefix", "10.0.0/8", "CIDR"},
		{"prefix through the mapped range", "::ffff:0:0/95", "host bits"},
		{"umlaut", "é.example.com", `"xn--9ca.example.com"`},
		{"umlaut under a star", "*.BÜCHER.example", `"*.xn--bcher-kva.example"`},
		{"several scripts", "пример.例え", `"xn--e1afmkfd.xn--r8jz45g"`},
		{"full-width letters get no suggestion", "ａpi.example.com", "send the A-label"},
		{"zero-width space gets no suggestion", "git\u200bhub.com", "send the A-label"},
		{"invalid UTF-8", "\xff.example.com", "send the A-label"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ParseRule(c.in, Origin{File: "session"})
			if err == nil {
				t.Fatalf("got the rule %q", r)
			}
			if r.String() != "" {
				t.Errorf("refused, and still the rule %q", r)
			}
			if !strings.HasPrefix(err.Error(), "parse rule") || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%q does not say %q", err, c.reason)
			}
			if _, ok := errors.AsType[*SyntaxError](err); !ok {
				t.Errorf("%T wraps no SyntaxError", err)
			}
			wantOneLine(t, err.Error())
		})
	}
}

func TestParseRuleNamesLine(t *testing.T) {
	_, err := ParseRule("github.com 443 udp", Origin{})
	if want := `parse rule "github.com 443 udp": "udp" is neither a port nor one of the flags http, https, private and tcp`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = ParseRule("*example.com", Origin{})
	if want := `parse rule: "*example.com" has a star glued to text: a wildcard is a whole label, as in *.example.com`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestOriginString(t *testing.T) {
	for want, o := range map[string]Origin{
		"configs/allow/baseline.list:3": {File: "configs/allow/baseline.list", Line: 3},
		"session":                       {File: "session"},
		"unnamed":                       {},
		"a?b:1":                         {File: "a\nb", Line: 1},
	} {
		if o.String() != want {
			t.Errorf("got %q, want %q", o, want)
		}
	}
}

// The samples of RFC 3492 section 7.1 that are in lower case.
func TestPunycode(t *testing.T) {
	for in, want := range map[string]string{
		"ليهمابتكلموشعربي؟":               "egbpdaj6bu4bxfgehfvwxn",
		"他们为什么不说中文":                       "ihqwcrb4cv8a8dqg056pqjye",
		"почемужеонинеговорятпорусски":    "b1abfaaepdrnnbgefbadotcwatmq2g4l",
		"3年b組金八先生":                        "3b-ww4c5e180e575a65lsy2b",
		"安室奈美恵-with-super-monkeys":        "-with-super-monkeys-pc58ag80a8qai00g7n9n",
		"bücher":                          "bcher-kva",
		"porquénopuedensimplementehablar": "porqunopuedensimplementehablar-fxc",
	} {
		if got, ok := punycode(in); !ok || got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
