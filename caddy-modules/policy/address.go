package policy

import "net/netip"

// Class is the kind of an address, by what it reaches. The ranges are those of
// the IANA special-purpose registries (RFC 6890) and what cloud providers made of
// them since.
type Class uint8

// The classes. Invalid is the zero one, so that an unset class is refused.
const (
	Invalid       Class = iota // no address
	Public                     // global unicast; the only class allowed without a rule for it
	Unspecified                // 0.0.0.0, ::; dialling it reaches this machine
	ThisNetwork                // 0.0.0.0/8
	Loopback                   // 127.0.0.0/8, ::1
	Private                    // RFC 1918
	Shared                     // 100.64.0.0/10, RFC 6598; clouds and overlay networks live here
	UniqueLocal                // fc00::/7
	LinkLocal                  // 169.254.0.0/16, fe80::/10
	SiteLocal                  // fec0::/10, deprecated and still routed by some
	Multicast                  // 224.0.0.0/4, ff00::/8
	Broadcast                  // 255.255.255.255
	Documentation              // RFC 5737, RFC 3849, RFC 9637
	Benchmark                  // 198.18.0.0/15, 2001:2::/48
	Reserved                   // the rest that is no global unicast
	Teredo                     // 2001::/32, carries two IPv4 addresses
	Metadata                   // credentials and control endpoints of clouds
)

var classes = [...]struct{ name, sentence string }{
	Invalid:       {"invalid", "not an address"},
	Public:        {"public", "a public address"},
	Unspecified:   {"unspecified", "the unspecified address, which reaches this machine"},
	ThisNetwork:   {"this_network", "an address of \"this network\" (0.0.0.0/8)"},
	Loopback:      {"loopback", "a loopback address of this machine"},
	Private:       {"private", "an address of a private network (RFC 1918)"},
	Shared:        {"shared", "an address of shared carrier or overlay space (100.64.0.0/10)"},
	UniqueLocal:   {"unique_local", "an address of a private network (fc00::/7)"},
	LinkLocal:     {"link_local", "a link-local address, where metadata services live"},
	SiteLocal:     {"site_local", "an address of a private network (fec0::/10)"},
	Multicast:     {"multicast", "a multicast address"},
	Broadcast:     {"broadcast", "the broadcast address"},
	Documentation: {"documentation", "an address reserved for documentation"},
	Benchmark:     {"benchmark", "an address reserved for benchmarks"},
	Reserved:      {"reserved", "an address reserved or out of global unicast space"},
	Teredo:        {"teredo", "a Teredo address, which hides IPv4 addresses"},
	Metadata:      {"metadata", "a cloud metadata or control endpoint"},
}

// Name is snake_case and stable: it stands in logs and metrics.
func (c Class) Name() string { return classes[c.index()].name }

// String is Name.
func (c Class) String() string { return c.Name() }

// Sentence says what an address of the class is, for a person: "a private
// address…", to follow "resolves to 10.0.0.5, ".
func (c Class) Sentence() string { return classes[c.index()].sentence }

func (c Class) index() Class {
	if int(c) < len(classes) {
		return c
	}
	return Invalid
}

// ByName says that the flag "private" of a rule lets its name resolve to an
// address of this class.
func (c Class) ByName() bool {
	switch c {
	case Public, Private, UniqueLocal, Shared, Loopback:
		return true
	default:
		return false
	}
}

// never says that no rule opens the class: TCP to it goes nowhere, or to this
// machine under a name that no check would recognise.
func (c Class) never() bool {
	switch c {
	case Invalid, Unspecified, ThisNetwork, LinkLocal, Multicast, Broadcast, Metadata:
		return true
	default:
		return false
	}
}

// specials are the special ranges, IPv4 and IPv6; the longest that contains an
// address gives its class. What none contains is Public in IPv4, and in IPv6
// Public inside 2000::/3 and Reserved outside.
var specials = []struct {
	prefix netip.Prefix
	class  Class
}{
	{netip.MustParsePrefix("0.0.0.0/32"), Unspecified},
	{netip.MustParsePrefix("0.0.0.0/8"), ThisNetwork},
	{netip.MustParsePrefix("10.0.0.0/8"), Private},
	{netip.MustParsePrefix("100.64.0.0/10"), Shared},
	{netip.MustParsePrefix("127.0.0.0/8"), Loopback},
	{netip.MustParsePrefix("169.254.0.0/16"), LinkLocal},
	{netip.MustParsePrefix("172.16.0.0/12"), Private},
	{netip.MustParsePrefix("192.0.0.0/24"), Reserved},
	{netip.MustParsePrefix("192.0.2.0/24"), Documentation},
	{netip.MustParsePrefix("192.88.99.0/24"), Reserved}, // 6to4 relays, RFC 7526
	{netip.MustParsePrefix("192.168.0.0/16"), Private},
	{netip.MustParsePrefix("198.18.0.0/15"), Benchmark},
	{netip.MustParsePrefix("198.51.100.0/24"), Documentation},
	{netip.MustParsePrefix("203.0.113.0/24"), Documentation},
	{netip.MustParsePrefix("224.0.0.0/4"), Multicast},
	{netip.MustParsePrefix("240.0.0.0/4"), Reserved},
	{netip.MustParsePrefix("255.255.255.255/32"), Broadcast},
	{netip.MustParsePrefix("::/128"), Unspecified},
	{netip.MustParsePrefix("::1/128"), Loopback},
	{netip.MustParsePrefix("2001::/32"), Teredo},
	{netip.MustParsePrefix("2001::/23"), Reserved}, // IETF protocol assignments
	{netip.MustParsePrefix("2001:2::/48"), Benchmark},
	{netip.MustParsePrefix("2001:db8::/32"), Documentation},
	{netip.MustParsePrefix("3fff::/20"), Documentation},
	{netip.MustParsePrefix("fc00::/7"), UniqueLocal},
	{netip.MustParsePrefix("fe80::/10"), LinkLocal},
	{netip.MustParsePrefix("fec0::/10"), SiteLocal},
	{netip.MustParsePrefix("ff00::/8"), Multicast},
}

var globalUnicast = netip.MustParsePrefix("2000::/3")

// Classify says what an address reaches: its class, and the address that the
// class was read from, which is a itself without zone and unmapped, or the IPv4
// address that a carries inside (see embedded). A transition address is never
// judged better than what it carries.
func Classify(a netip.Addr) (Class, netip.Addr) {
	a = canonical(a)
	if !a.IsValid() {
		return Invalid, a
	}
	if class := plainClass(a); class == Metadata || a.Is4() {
		return class, a
	}
	e := embedded(a)
	worst, from := Public, a
	for _, inner := range e.list() {
		class := plainClass(inner)
		if class != Public && worst == Public || class == Metadata {
			worst, from = class, inner
		}
	}
	if worst != Public {
		return worst, from
	}
	if e.n > 0 && e.routed {
		return Public, e.addrs[0]
	}
	return plainClass(a), a
}

// classTables hold specials and the metadata endpoints, IPv4 and IPv6.
var classTables = func() (tables [2]prefixTable[Class]) {
	families := [2]map[netip.Prefix]Class{{}, {}}
	family := func(p netip.Prefix) map[netip.Prefix]Class {
		if p.Addr().Is4() {
			return families[0]
		}
		return families[1]
	}
	for _, s := range specials {
		family(s.prefix)[s.prefix] = s.class
	}
	for _, p := range metadataAddrs {
		family(p)[p] = Metadata
	}
	for i := range tables {
		tables[i] = newPrefixTable(families[i])
	}
	return tables
}()

// plainClass is the class of the address as it stands, nothing unwrapped.
func plainClass(a netip.Addr) Class {
	t := &classTables[0]
	if !a.Is4() {
		t = &classTables[1]
	}
	if i := t.longest(a); i >= 0 {
		return t.spans[i].value
	}
	if a.Is4() || globalUnicast.Contains(a) {
		return Public
	}
	return Reserved
}

// classOf is the one class that a whole prefix is of, Invalid where it reaches over
// several. A rule for such a prefix (0.0.0.0/0) opens only what is public in it:
// nobody who writes it means loopback.
func classOf(p netip.Prefix) Class {
	if p.IsSingleIP() {
		class, _ := Classify(p.Addr())
		return class
	}
	class, bits := Public, -1
	if !p.Addr().Is4() && !globalUnicast.Contains(p.Addr()) {
		class = Reserved
	}
	for _, s := range specials {
		switch {
		case s.prefix.Bits() <= p.Bits() && s.prefix.Contains(p.Addr()):
			if s.prefix.Bits() > bits {
				class, bits = s.class, s.prefix.Bits()
			}
		case s.prefix.Overlaps(p):
			return Invalid
		}
	}
	for _, c := range carriers {
		if c.prefix.Overlaps(p) {
			return Invalid
		}
	}
	return class
}
