package dnsguard

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"pgregory.net/rapid"
)

func TestReadName(t *testing.T) {
	for _, c := range []struct {
		in, name string
		kind     kind
		bad      bool
	}{
		{in: "API.GitHub.com.", name: "api.github.com"},
		{in: "_acme-challenge.example.com.", name: "_acme-challenge.example.com"},
		{in: "xn--bcher-kva.example.", name: "xn--bcher-kva.example"},
		{in: strings.Repeat("a.", 126) + "a.", name: strings.Repeat("a.", 126) + "a"},
		{in: `evil\.github.com.`, bad: true},
		{in: `evil\046github.com.`, bad: true},
		{in: `evil.com\000.github.com.`, bad: true},
		{in: `a\ b.github.com.`, bad: true},
		{in: `\\.github.com.`, bad: true},
		{in: `b\195\188cher.github.com.`, bad: true},
		{in: "*.github.com.", bad: true},
		{in: "a..github.com.", bad: true},
		{in: ".github.com.", bad: true},
		{in: "a/b.github.com.", bad: true},
		{in: "a%2e.github.com.", bad: true},
		{in: "a@b.github.com.", bad: true},
		{in: "-a.github.com.", bad: true},
		{in: strings.Repeat("a", 64) + ".com.", bad: true},
		{in: strings.Repeat("a.", 127) + "a.", bad: true},
		{in: ".", kind: kindSpecial},
		{in: "", kind: kindSpecial},
		{in: "local.", name: "local", kind: kindSpecial},
		{in: "printer.", name: "printer", kind: kindSingle},
		{in: "169.254.169.254.", name: "169.254.169.254", kind: kindSpecial},
		{in: "127.1.", name: "127.1", kind: kindSpecial},
		{in: "2130706433.", name: "2130706433", kind: kindSpecial},
		{in: "0X7F.1.", name: "0x7f.1", kind: kindSpecial},
		{in: "1.2.3.0xff.", name: "1.2.3.0xff", kind: kindSpecial},
		{in: "evil.com.0x.", name: "evil.com.0x", kind: kindSpecial},
		{in: "nas.local.", name: "nas.local", kind: kindSpecial},
		{in: "abc.ONION.", name: "abc.onion", kind: kindSpecial},
		{in: "git.internal.", name: "git.internal", kind: kindSpecial},
		{in: "a.test.", name: "a.test", kind: kindSpecial},
		{in: "a.invalid.", name: "a.invalid", kind: kindSpecial},
		{in: "a.alt.", name: "a.alt", kind: kindSpecial},
		{in: "home.arpa.", name: "home.arpa", kind: kindSpecial},
		{in: "_dns.resolver.arpa.", name: "_dns.resolver.arpa", kind: kindSpecial},
		{in: "localhost.localdomain.", name: "localhost.localdomain", kind: kindSpecial},
		{in: "LocalHost.", name: "localhost", kind: kindLocalhost},
		{in: "app.localhost.", name: "app.localhost", kind: kindLocalhost},
		{in: "notlocalhost.", name: "notlocalhost", kind: kindSingle},
		{in: "9.113.0.203.in-addr.arpa.", name: "9.113.0.203.in-addr.arpa", kind: kindReverse},
		{in: "x.ip6.arpa.", name: "x.ip6.arpa", kind: kindReverse},
		{in: "x.notip6.arpa.", name: "x.notip6.arpa", kind: kindSpecial},
		{in: "localhost.example.com.", name: "localhost.example.com"},
		{in: "local.example.com.", name: "local.example.com"},
	} {
		s, err := readName(c.in)
		if c.bad != (err != nil) {
			t.Errorf("%q: error %v", c.in, err)
			continue
		}
		if err == nil && (s.name != c.name || s.kind != c.kind) {
			t.Errorf("%q: %q kind %d, want %q kind %d", c.in, s.name, s.kind, c.name, c.kind)
		}
		if err == nil && (s.kind != kindGlobal) != (s.why != "") {
			t.Errorf("%q: explanation %q", c.in, s.why)
		}
	}
}

// TestNamesAreLabels holds the whole way from wire to rule: whatever octets the
// labels of a question hold, a name is accepted only with exactly those labels.
func TestNamesAreLabels(t *testing.T) {
	alphabet := []byte("aZ09-_.*\\ \x00\xff@/%")
	rapid.Check(t, func(rt *rapid.T) {
		labels := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(alphabet), 1, 8), 1, 6).Draw(rt, "labels")
		labels = append(labels, []byte("github"), []byte("com"))
		var wire []byte
		for _, label := range labels {
			wire = append(append(wire, byte(len(label))), label...)
		}
		text, _, err := dns.UnpackDomainName(append(wire, 0), 0)
		if err != nil {
			rt.Fatal(err)
		}
		s, err := readName(text)
		if err != nil {
			return
		}
		want := strings.ToLower(string(bytes.Join(labels, []byte("."))))
		if s.name != want || strings.Count(s.name, ".") != len(labels)-1 {
			rt.Fatalf("labels %q were read as %q", labels, s.name)
		}
		if strings.ContainsFunc(s.name, func(r rune) bool { return r > '~' || strings.ContainsRune("*\\ \x00@/%", r) }) {
			rt.Fatalf("accepted %q", s.name)
		}
	})
}

func TestReverseAddr(t *testing.T) {
	for _, c := range []struct{ name, addr string }{
		{"9.113.0.203.in-addr.arpa", "203.0.113.9"},
		{"1.0.0.127.in-addr.arpa", "127.0.0.1"},
		{"01.0.0.127.in-addr.arpa", ""},
		{"256.0.0.127.in-addr.arpa", ""},
		{"0.0.127.in-addr.arpa", ""},
		{"x.1.0.0.127.in-addr.arpa", ""},
		{"+1.0.0.127.in-addr.arpa", ""},
		{"0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "2001:db8::10"},
		{"a.b.ip6.arpa", ""},
		{"g.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", ""},
		{strings.Repeat("0", 63) + ".ip6.arpa", ""},
	} {
		addr, ok := reverseAddr(c.name)
		if ok != (c.addr != "") || ok && addr != netip.MustParseAddr(c.addr) {
			t.Errorf("%s: %v %v", c.name, addr, ok)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "address")
		addr, _ := netip.AddrFromSlice(b[:rapid.SampledFrom([]int{4, 16}).Draw(rt, "size")])
		name, err := dns.ReverseAddr(addr.String())
		if err != nil {
			rt.Fatal(err)
		}
		if got, ok := reverseAddr(strings.TrimSuffix(name, ".")); !ok || got != addr.Unmap() {
			rt.Fatalf("%s: %v", name, got)
		}
	})
}

func TestPublicResolver(t *testing.T) {
	for name, want := range map[string]bool{
		"dns.google": true, "x.dns.google": true, "mozilla.cloudflare-dns.com": true, "use-application-dns.net": true,
		"mask.icloud.com": true, "mask-h2.icloud.com": true, "one.one.one.one": true, "_dns.resolver.arpa": true,
		"abcdef.dns.nextdns.io": true, "icloud.com": false, "notdns.google": false, "google": false, "one.one.one": false,
		"cloudflare.com": false, "example.com": false,
	} {
		if _, got := publicResolver(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name := range resolvers {
		if host, err := parseName(name); err != nil || host.Name() != name {
			t.Errorf("%q in the list is not canonical: %v", name, err)
		}
	}
}
