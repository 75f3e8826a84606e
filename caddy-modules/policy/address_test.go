package policy

import (
	"net/netip"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		in    string
		class Class
		from  string // "" for the address itself
	}{
		{"1.1.1.1", Public, ""},
		{"140.82.112.5", Public, ""},
		{"9.255.255.255", Public, ""},
		{"11.0.0.0", Public, ""},
		{"100.63.255.255", Public, ""},
		{"100.128.0.0", Public, ""},
		{"172.15.255.255", Public, ""},
		{"172.32.0.0", Public, ""},
		{"223.255.255.255", Public, ""},
		{"0.0.0.0", Unspecified, ""},
		{"0.1.2.3", ThisNetwork, ""},
		{"10.0.0.5", Private, ""},
		{"172.16.0.1", Private, ""},
		{"172.31.255.255", Private, ""},
		{"192.168.1.1", Private, ""},
		{"100.64.0.1", Shared, ""},
		{"100.127.255.255", Shared, ""},
		{"127.0.0.1", Loopback, ""},
		{"127.255.255.254", Loopback, ""},
		{"169.254.1.1", LinkLocal, ""},
		{"192.0.0.8", Reserved, ""},
		{"192.0.2.1", Documentation, ""},
		{"198.51.100.7", Documentation, ""},
		{"203.0.113.7", Documentation, ""},
		{"192.88.99.1", Reserved, ""},
		{"198.18.0.1", Benchmark, ""},
		{"198.19.255.255", Benchmark, ""},
		{"224.0.0.251", Multicast, ""},
		{"239.255.255.255", Multicast, ""},
		{"240.0.0.1", Reserved, ""},
		{"255.255.255.255", Broadcast, ""},
		{"169.254.169.254", Metadata, ""},
		{"169.254.170.2", Metadata, ""},
		{"169.254.170.23", Metadata, ""},
		{"169.254.42.42", Metadata, ""},
		{"168.63.129.16", Metadata, ""},
		{"168.63.129.15", Public, ""},
		{"100.100.100.200", Metadata, ""},
		{"192.0.0.192", Metadata, ""},

		{"2606:4700::1111", Public, ""},
		{"2001:4860:4860::8888", Public, ""},
		{"2001:200::1", Public, ""},
		{"::", Unspecified, ""},
		{"::1", Loopback, ""},
		{"fd12:3456::1", UniqueLocal, ""},
		{"fc00::", UniqueLocal, ""},
		{"fe80::1", LinkLocal, ""},
		{"febf::1", LinkLocal, ""},
		{"fec0::1", SiteLocal, ""},
		{"ff02::1", Multicast, ""},
		{"2001:db8::1", Documentation, ""},
		{"3fff:fff::1", Documentation, ""},
		{"2001:2::1", Benchmark, ""},
		{"2001:10::1", Reserved, ""},
		{"2001:20::1", Reserved, ""},
		{"100::1", Reserved, ""},
		{"5f00::1", Reserved, ""},
		{"4000::1", Reserved, ""},
		{"e000::1", Reserved, ""},
		{"fd00:ec2::254", Metadata, ""},
		{"fd00:ec2::23", Metadata, ""},
		{"fd20:ce::254", Metadata, ""},
		{"fe80::a9fe:a9fe", Metadata, ""},

		{"::ffff:8.8.8.8", Public, "8.8.8.8"},
		{"::ffff:10.0.0.5", Private, "10.0.0.5"},
		{"::ffff:a9fe:a9fe", Metadata, "169.254.169.254"},
		{"::ffff:0.0.0.0", Unspecified, "0.0.0.0"},
		{"::10.0.0.5", Private, "10.0.0.5"},
		{"::127.0.0.1", Loopback, "127.0.0.1"},
		{"::8.8.8.8", Reserved, ""},
		{"::2", ThisNetwork, "0.0.0.2"},
		{"::ffff:0:169.254.169.254", Metadata, "169.254.169.254"},
		{"::ffff:0:8.8.8.8", Reserved, ""},
		{"64:ff9b::8.8.8.8", Public, "8.8.8.8"},
		{"64:ff9b::169.254.169.254", Metadata, "169.254.169.254"},
		{"64:ff9b::168.63.129.16", Metadata, "168.63.129.16"},
		{"64:ff9b::10.0.0.5", Private, "10.0.0.5"},
		{"64:ff9b::127.0.0.1", Loopback, "127.0.0.1"},
		{"64:ff9b::1:8.8.8.8", Reserved, ""},
		{"64:ff9b:1::a9fe:a9fe", Metadata, "169.254.169.254"},
		{"64:ff9b:1::a00:5", Private, "10.0.0.5"},
		{"64:ff9b:1:a9fe:a9:fe00::", Metadata, "169.254.169.254"},
		{"64:ff9b:1:808:8:808:808:808", Reserved, ""},
		{"2002:a9fe:a9fe::1", Metadata, "169.254.169.254"},
		{"2002:a00:5::1", Private, "10.0.0.5"},
		{"2002:808:808::1", Public, "8.8.8.8"},
		{"2001:0:a00:5::", Private, "10.0.0.5"},
		{"2001:0:808:808:0:0:5601:5601", Metadata, "169.254.169.254"},
		{"2001:0:808:808:0:0:f7f7:f7f7", Teredo, ""},
	} {
		a := netip.MustParseAddr(c.in)
		want := a
		if c.from != "" {
			want = netip.MustParseAddr(c.from)
		}
		class, from := Classify(a)
		if class != c.class || from != want {
			t.Errorf("%s: got %v from %v, want %v from %v", c.in, class, from, c.class, want)
		}
		// A zone must never change what an address is: Prefix.Contains is false
		// for every address with one.
		if a.Is6() {
			zoned, zonedFrom := Classify(a.WithZone(".allowed.com"))
			if zoned != class || zonedFrom != from {
				t.Errorf("%s: with a zone got %v from %v, want %v from %v", c.in, zoned, zonedFrom, class, from)
			}
		}
	}
	if class, _ := Classify(netip.Addr{}); class != Invalid {
		t.Errorf("no address: got %v", class)
	}
}

func TestClassTexts(t *testing.T) {
	seen := map[string]bool{}
	for c := Invalid; c <= Metadata; c++ {
		if c.Name() == "" || c.Sentence() == "" || c.String() != c.Name() || seen[c.Name()] {
			t.Errorf("class %d: name %q, sentence %q", c, c.Name(), c.Sentence())
		}
		seen[c.Name()] = true
	}
	if got := Class(200).Name(); got != "invalid" {
		t.Errorf("unknown class: got %q", got)
	}
}

func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		prefix string
		class  Class
	}{
		{"10.0.0.0/8", Private},
		{"10.1.2.0/24", Private},
		{"192.168.0.0/16", Private},
		{"127.0.0.0/8", Loopback},
		{"127.0.0.1/32", Loopback},
		{"fc00::/7", UniqueLocal},
		{"fd12:3456::/48", UniqueLocal},
		{"::1/128", Loopback},
		{"64:ff9b::a00:5/128", Private},
		{"0.0.0.0/0", Invalid},
		{"0.0.0.0/1", Invalid},
		{"8.0.0.0/6", Invalid},
		{"::/0", Invalid},
		{"::/1", Invalid},
		{"64:ff9b::/96", Invalid},
		{"2002::/16", Invalid},
		{"2002:a00::/24", Invalid},
		{"240.0.0.0/4", Invalid},
		{"8.8.8.0/24", Public},
		{"2606:4700::/32", Public},
		{"5f00::/16", Reserved},
	} {
		if class := classOf(netip.MustParsePrefix(c.prefix)); class != c.class {
			t.Errorf("%s: got %v, want %v", c.prefix, class, c.class)
		}
	}
}

// A special range that lies in another must be the longer one in the table, and
// none may be written twice.
func TestSpecialsAreApart(t *testing.T) {
	for i, a := range specials {
		if a.prefix.Masked() != a.prefix {
			t.Errorf("%v has host bits", a.prefix)
		}
		for _, b := range specials[i+1:] {
			if a.prefix == b.prefix {
				t.Errorf("%v is there twice", a.prefix)
			}
		}
	}
}

func TestPrefixTable(t *testing.T) {
	table := newPrefixTable(map[netip.Prefix]string{
		netip.MustParsePrefix("2001:db8::/32"):       "wide",
		netip.MustParsePrefix("2001:db8::/64"):       "first",
		netip.MustParsePrefix("2001:db8::/128"):      "zero",
		netip.MustParsePrefix("2001:db8::5/128"):     "five",
		netip.MustParsePrefix("2001:db8:0:1::/64"):   "second",
		netip.MustParsePrefix("2001:db8:ffff::/48"):  "last",
		netip.MustParsePrefix("2001:db9::1:0:0/112"): "low half",
	})
	for in, want := range map[string]string{
		"2001:db8::":               "zero first wide",
		"2001:db8::4":              "first wide",
		"2001:db8::5":              "five first wide",
		"2001:db8::6":              "first wide",
		"2001:db8:0:1::5":          "second wide",
		"2001:db8:0:2::":           "wide",
		"2001:db8:ffff:ffff::1":    "last wide",
		"2001:db7:ffff::":          "",
		"2001:db9::":               "",
		"2001:db9::1:0:7":          "low half",
		"2001:db9::2:0:7":          "",
		"::":                       "",
		"ffff:ffff:ffff:ffff::fff": "",
	} {
		got := ""
		for i := table.longest(netip.MustParseAddr(in)); i >= 0; i = table.spans[i].parent {
			if got != "" {
				got += " "
			}
			got += table.spans[i].value
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
	empty := newPrefixTable(map[netip.Prefix]string{})
	if i := empty.longest(netip.MustParseAddr("::1")); i != -1 {
		t.Errorf("an empty table finds %d", i)
	}
}
