package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	name253 := strings.Repeat("a.", 126) + "b"
	for _, c := range []struct{ name, in, want string }{
		{"name", "api.github.com", "api.github.com"},
		{"case", "API.GitHub.COM", "api.github.com"},
		{"root dot", "api.github.com.", "api.github.com"},
		{"single label", "intranet", "intranet"},
		{"underscore", "_dmarc.a_b.example.com", "_dmarc.a_b.example.com"},
		{"hyphens in the middle", "r3---sn-abc.example.com", "r3---sn-abc.example.com"},
		{"A-label", "XN--Exmple-cua.com", "xn--exmple-cua.com"},
		{"numeric label", "1.example.com", "1.example.com"},
		{"hex-like label under a domain", "0x7f.example.com", "0x7f.example.com"},
		{"hex letters without 0x", "cafe", "cafe"},
		{"0x with other letters", "a.0xyz", "a.0xyz"},
		{"longest label", label63 + ".com", label63 + ".com"},
		{"longest name", name253, name253},
		{"longest name and root dot", name253 + ".", name253},
		{"address with a domain behind it", "127.0.0.1.nip.io", "127.0.0.1.nip.io"},
		{"IPv4", "192.0.2.1", "192.0.2.1"},
		{"IPv4 ends", "255.255.255.255", "255.255.255.255"},
		{"IPv6", "2001:DB8::1", "2001:db8::1"},
		{"IPv6 long", "0:0:0:0:0:0:0:1", "::1"},
		{"IPv6 leading zeros", "0000::0001", "::1"},
		{"IPv6 in brackets", "[2001:db8::1]", "2001:db8::1"},
		{"mapped", "::ffff:10.0.0.5", "10.0.0.5"},
		{"mapped in hex and brackets", "[::FFFF:a00:5]", "10.0.0.5"},
		{"compatible stays IPv6", "::10.0.0.5", "::a00:5"},
		{"link-local with zone", "fe80::1%eth0", "fe80::1"},
		{"link-local with zone as in URLs", "[fe80::1%25eth0.100]", "fe80::1"},
		{"link-local with interface number", "fe80::1%3", "fe80::1"},
		{"link-local with interface number 25", "fe80::1%25", "fe80::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := ParseHost(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if h.String() != c.want || h.IsZero() {
				t.Errorf("got %q, want %q", h, c.want)
			}
			_, isAddr := h.Addr()
			if isAddr == (h.Name() != "") {
				t.Errorf("%q is both or neither of a name and an address", h)
			}
			if again, err := ParseHost(h.String()); err != nil || again != h {
				t.Errorf("canonical text %q reads back as %v, %v", h, again, err)
			}
		})
	}
}

func TestParseHostMalformed(t *testing.T) {
	for _, c := range []struct{ name, in, reason string }{
		{"empty", "", "empty"},
		{"root", ".", "root"},
		{"two root dots", "a.com..", "empty label"},
		{"leading dot", ".a.com", "empty label"},
		{"empty label inside", "a..com", "empty label"},
		{"long label", strings.Repeat("a", 64) + ".com", "63 bytes"},
		{"long name", strings.Repeat("a.", 126) + "bb", "253 bytes"},
		{"very long name", strings.Repeat("a.", 100_000) + "b", "253 bytes"},
		{"hyphen first", "-a.com", "hyphen"},
		{"hyphen last", "a-.com", "hyphen"},
		{"hyphen last of all", "a.com-", "hyphen"},
		{"hyphen alone", "-", "hyphen"},
		{"NUL", "evil.com\x00.a.com", "NUL"},
		{"encoded NUL", "evil.com%00.a.com", "percent"},
		{"encoded letter", "%61.com", "percent"},
		{"CRLF", "evil.com\r\nX: a.com", "line break"},
		{"LF at the end", "a.com\n", "line break"},
		{"blank before", " a.com", "blank"},
		{"tab after", "a.com\t", "blank"},
		{"vertical tab", "a\v.com", "control"},
		{"DEL", "a\x7f.com", "control"},
		{"escape sequence", "a\x1b[2J.com", "control"},
		{"backslash", `evil.com\.a.com`, "byte"},
		{"slash", "evil.com/.a.com", "byte"},
		{"at sign", "evil.com@a.com", "at sign"},
		{"star", "*.a.com", "star"},
		{"lone star", "*", "star"},
		{"quote", `a".com`, "byte"},
		{"comma", "a,b.com", "byte"},
		{"placeholder", "{$X}.com", "byte"},
		{"umlaut", "exämple.com", "ASCII"},
		{"ideographic full stop", "api。github。com", "ASCII"},
		{"full-width full stop", "api．github．com", "ASCII"},
		{"half-width ideographic full stop", "api｡github.com", "ASCII"},
		{"full-width letter", "ａpi.github.com", "ASCII"},
		{"circled digits", "①②⑦.0.0.1", "ASCII"},
		{"soft hyphen", "git\u00adhub.com", "ASCII"},
		{"zero-width space", "git\u200bhub.com", "ASCII"},
		{"zero-width joiner", "git\u200dhub.com", "ASCII"},
		{"byte order mark", "\ufeffgithub.com", "ASCII"},
		{"right-to-left override", "moc.\u202ebuhtig", "ASCII"},
		{"Kelvin sign, which lower-cases to k", "\u212aey.com", "ASCII"},
		{"dotless and long s", "git.ıſ", "ASCII"},
		{"account-of sign", "a\u2100.com", "ASCII"},
		{"invalid UTF-8", "\xff\xfe.com", "ASCII"},
		{"colon", "a.com:443", "IPv6"},
		{"URL", "http://a.com", "IPv6"},
		{"decimal IPv4", "2852039166", "decimal IPv4"},
		{"hex IPv4", "0xA9FEA9FE", "decimal IPv4"},
		{"hex IPv4, upper-case X", "0XA9FEA9FE", "decimal IPv4"},
		{"octal IPv4", "0251.0376.0251.0376", "decimal IPv4"},
		{"dotted hex", "0xa9.0xfe.0xa9.0xfe", "decimal IPv4"},
		{"octal integer", "017700000001", "decimal IPv4"},
		{"three parts", "169.254.43518", "decimal IPv4"},
		{"two parts", "169.16689662", "decimal IPv4"},
		{"short", "127.1", "decimal IPv4"},
		{"hex and short", "0x7f.1", "decimal IPv4"},
		{"zero", "0", "decimal IPv4"},
		{"bare 0x", "0x", "decimal IPv4"},
		{"leading zero", "127.0.0.01", "decimal IPv4"},
		{"root dot", "169.254.169.254.", "decimal IPv4"},
		{"five parts", "1.2.3.4.5", "decimal IPv4"},
		{"part over 255", "1.2.3.256", "decimal IPv4"},
		{"over 32 bits", "4294967296", "decimal IPv4"},
		{"numeric top-level domain", "foo.123", "decimal IPv4"},
		{"numeric top-level domain and root dot", "foo.123.", "decimal IPv4"},
		{"hex top-level domain", "foo.0xfe", "decimal IPv4"},
		{"empty part", "127..1", "decimal IPv4"},
		{"name in brackets", "[evil.com]", "brackets"},
		{"IPv4 in brackets", "[127.0.0.1]", "brackets"},
		{"nothing in brackets", "[]", "brackets"},
		{"future form in brackets", "[v1.fe80]", "brackets"},
		{"unclosed bracket", "[::1", "closing"},
		{"text behind the bracket", "[::1]a", "closing"},
		{"double brackets", "[[::1]]", "byte"},
		{"closing bracket alone", "::1]", "IPv6"},
		{"zone on loopback", "::1%.allowed.com", "link-local"},
		{"zone on loopback in a URL", "[::1%25.allowed.com]", "link-local"},
		{"zone on mapped metadata", "::ffff:169.254.169.254%.allowed.com", "link-local"},
		{"zone on a global address", "2001:db8::1%eth0", "link-local"},
		{"zone on multicast", "ff02::1%eth0", "link-local"},
		{"zone that is a suffix", "fe80::1%.allowed.com", "no interface"},
		{"zone longer than an interface name", "fe80::1%eth0.allowed.com", "no interface"},
		{"zone with a NUL", "fe80::1%a\x00b", "no interface"},
		{"empty zone", "fe80::1%", "no interface"},
		{"two zones", "fe80::1%a%b", "no interface"},
		{"IPv6 with a root dot", "::1.", "IPv6"},
		{"IPv6 with a bad IPv4 tail", "::ffff:127.0.0.01", "IPv6"},
		{"IPv6 too long", "1:2:3:4:5:6:7:8:9", "IPv6"},
		{"IPv6 of two gaps", "1::2::3", "IPv6"},
		{"IPv6 with a prefix length", "fc00::/7", "IPv6"},
		{"IPv6 with a blank", " ::1", "blank"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := ParseHost(c.in)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("got %q, %v; want a SyntaxError", h, err)
			}
			if !h.IsZero() {
				t.Errorf("malformed, and still the host %q", h)
			}
			if syntax.Input != c.in {
				t.Errorf("input %q, want %q", syntax.Input, c.in)
			}
			if !strings.Contains(syntax.Reason, c.reason) {
				t.Errorf("reason %q does not say %q", syntax.Reason, c.reason)
			}
			wantOneLine(t, err.Error())
			if len(err.Error()) > 500 {
				t.Errorf("%d bytes of error text", len(err.Error()))
			}
		})
	}
}

// The text of IPv6 in a DOMAINNAME would be dialled as an address by whoever
// passes it on.
func TestParseNameTakesNoIPv6(t *testing.T) {
	for _, in := range []string{"::1", "[::1]", "fe80::1%eth0", "::ffff:127.0.0.1"} {
		if h, err := ParseName(in); err == nil {
			t.Errorf("%q: got %v", in, h)
		}
	}
	if h, err := ParseName("127.0.0.1"); err != nil || h.String() != "127.0.0.1" || h.Name() != "" {
		t.Errorf("IPv4 text: got %v, %v; want the literal", h, err)
	}
}

func TestHostFromAddr(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.5":                    "10.0.0.5",
		"::ffff:10.0.0.5":             "10.0.0.5",
		"::ffff:10.0.0.5%eth0":        "10.0.0.5",
		"fe80::1%eth0":                "fe80::1",
		"::1%.allowed.com":            "::1",
		"64:ff9b::169.254.169.254":    "64:ff9b::a9fe:a9fe",
		"2001:db8:0:0:0:0:0:0001%zzz": "2001:db8::1",
	} {
		h := HostFromAddr(netip.MustParseAddr(in))
		if h.String() != want {
			t.Errorf("%s: got %s, want %s", in, h, want)
		}
		if a, ok := h.Addr(); !ok || a.Zone() != "" || a.Is4In6() {
			t.Errorf("%s: address %v is not canonical", in, a)
		}
	}
	if h := HostFromAddr(netip.Addr{}); !h.IsZero() || h.String() != "" {
		t.Errorf("no address gives the host %q", h)
	}
}

func TestSyntaxErrorQuotes(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nb":                          `"a\r\nb"`,
		"\x1b[31m":                        `"\x1b[31m"`,
		"ä":                               `"\u00e4"`,
		"\xff":                            `"\xff"`,
		strings.Repeat("a", 81):           `"` + strings.Repeat("a", 80) + `"...`,
		strings.Repeat("a", 79) + "世界":    `"` + strings.Repeat("a", 79) + `"...`,
		strings.Repeat("\xbf", 200)[:100]: `"` + strings.Repeat(`\xbf`, 76) + `"...`,
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	if got := printable("a\nb\tcä"); got != "a?b?c??" {
		t.Errorf("printable: got %q", got)
	}
}
