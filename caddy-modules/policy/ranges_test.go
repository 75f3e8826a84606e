package policy

import (
	"net/netip"
	"strings"
	"testing"
)

// TestRanges: what an operator says of his network holds wherever an address is judged,
// and opens nothing besides.
func TestRanges(t *testing.T) {
	host := func(name string) Host {
		h, err := ParseHost(name)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	var rules []Rule
	for i, text := range []string{"a.example", "git.example", "wide.example", "localhost private", "192.0.2.0/24"} {
		r, err := ParseRule(text, Origin{File: "test.list", Line: i + 1})
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	given := Ranges{
		Public: prefixes("203.0.113.0/24", "198.18.0.0/15", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "fe80::/10"),
		PrivateFor: map[Host][]netip.Prefix{
			host("git.example"):  prefixes("10.9.0.0/16"),
			host("wide.example"): prefixes("0.0.0.0/0", "::/0"),
			host("localhost"):    prefixes("0.0.0.0/0"),
			host("none.example"): prefixes("0.0.0.0/0"),
		},
	}
	set, err := Compile(Lists{Allow: rules, Ranges: given}, func(at netip.AddrPort) bool { return at.Addr() == netip.MustParseAddr("10.9.0.1") })
	if err != nil {
		t.Fatal(err)
	}
	given.Public[0] = prefixes("0.0.0.0/0")[0] // a Set never changes
	clear(given.PrivateFor)
	for _, c := range []struct {
		name, addr string
		want       string // "" for allowed
	}{
		{"a.example", "203.0.113.7", ""},
		{"a.example", "198.19.1.1", ""},
		{"a.example", "64:ff9b::203.0.113.7", ""}, // NAT64 of it
		{"a.example", "192.0.2.1", AddressClass.String()},
		{"a.example", "10.1.2.3", AddressClass.String()}, // private is not made public
		{"a.example", "127.0.0.1", AddressClass.String()},
		{"a.example", "169.254.169.254", AlwaysDenied.String()},
		{"a.example", "169.254.1.1", AlwaysDenied.String()},
		{"git.example", "10.9.8.7", ""},
		{"git.example", "10.9.0.1", OwnListener.String()},
		{"git.example", "10.10.8.7", AddressClass.String()},
		{"git.example", "64:ff9b::10.9.8.7", AddressClass.String()},
		{"wide.example", "172.16.0.1", ""},
		{"wide.example", "127.0.0.1", ""},
		{"wide.example", "0.0.0.0", AddressClass.String()},
		{"wide.example", "224.0.0.1", AddressClass.String()},
		{"wide.example", "169.254.169.254", AlwaysDenied.String()},
		{"wide.example", "168.63.129.16", AlwaysDenied.String()},
		{"localhost", "127.0.0.1", ""}, // by its rule
		{"localhost", "203.0.113.7", AddressClass.String()},
		{"localhost", "10.1.2.3", AddressClass.String()},
		{"none.example", "10.1.2.3", NotAllowed.String()},
	} {
		target, err := NewTarget(host(c.name), 443, SchemeTCP)
		if err != nil {
			t.Fatal(err)
		}
		d := set.DecideAddr(target, netip.MustParseAddr(c.addr))
		got := ""
		if !d.Allowed {
			got = d.Code.String()
		}
		if got != c.want {
			t.Errorf("%s at %s: %q, want %q", c.name, c.addr, got, c.want)
		}
	}
	for want, r := range map[string]Ranges{
		"it is an address": {PrivateFor: map[Host][]netip.Prefix{host("10.1.2.3"): nil}},
		"a host is empty":  {PrivateFor: map[Host][]netip.Prefix{{}: nil}},
	} {
		if _, err := Compile(Lists{Ranges: r}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("compiled: %v, want %q", err, want)
		}
	}
}
