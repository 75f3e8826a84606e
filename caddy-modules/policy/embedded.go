package policy

import "net/netip"

// carrier is an IPv6 prefix whose addresses carry an IPv4 address.
type carrier struct {
	prefix netip.Prefix
	// at gives, for each place where the IPv4 address may stand, its four bytes.
	at [][4]int
	// inverted: the bits of the second place are flipped (Teredo's client).
	inverted bool
	// routed: such an address with a public IPv4 address inside is in real use,
	// so it is judged by it alone. All others stay refused.
	routed bool
}

// last32 is where most forms have the IPv4 address.
var last32 = [4]int{12, 13, 14, 15}

// carriers are the forms of an IPv4 address inside IPv6. The mapped form is not
// among them: netip unmaps it.
var carriers = []carrier{
	// IPv4-compatible, RFC 4291 section 2.5.5.1, deprecated.
	{prefix: netip.MustParsePrefix("::/96"), at: [][4]int{last32}},
	// IPv4-translated, RFC 2765 (SIIT).
	{prefix: netip.MustParsePrefix("::ffff:0:0:0/96"), at: [][4]int{last32}},
	// NAT64 well-known prefix, RFC 6052. Dual-stack clouds resolve to it, so a
	// blanket refusal would close them.
	{prefix: netip.MustParsePrefix("64:ff9b::/96"), at: [][4]int{last32}, routed: true},
	// NAT64 local-use prefix, RFC 8215. The operator picks the length, so the
	// address may stand in any place of RFC 6052 section 2.2.
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: [][4]int{last32, {6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}}},
	// 6to4, RFC 3056.
	{prefix: netip.MustParsePrefix("2002::/16"), at: [][4]int{{2, 3, 4, 5}}, routed: true},
	// Teredo, RFC 4380: the server, and the client with its bits flipped.
	{prefix: netip.MustParsePrefix("2001::/32"), at: [][4]int{{4, 5, 6, 7}, last32}, inverted: true},
}

// carried is what an IPv6 address carries.
type carried struct {
	addrs  [4]netip.Addr
	n      int
	routed bool
}

func (c *carried) list() []netip.Addr { return c.addrs[:c.n] }

// embedded lists the IPv4 addresses that a canonical address may lead to. A deny
// rule for one of them holds for the carrier too: a NAT64 gateway or a 6to4 relay
// makes the one of the other.
func embedded(a netip.Addr) (out carried) {
	// Every carrier begins with a zero byte or 0x20, which spares the ordinary
	// IPv6 address the loop.
	if !a.Is6() {
		return out
	}
	b := a.As16()
	if b[0] != 0 && b[0] != 0x20 {
		return out
	}
	// :: and ::1 are addresses of their own, not 0.0.0.0 and 0.0.0.1.
	if a == netip.IPv6Unspecified() || a == netip.IPv6Loopback() {
		return out
	}
	for i := range carriers {
		c := &carriers[i]
		if !c.prefix.Contains(a) {
			continue
		}
		for j, at := range c.at {
			v4 := [4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]}
			if c.inverted && j == 1 {
				for k := range v4 {
					v4[k] = ^v4[k]
				}
			}
			out.addrs[out.n] = netip.AddrFrom4(v4)
			out.n++
		}
		out.routed = c.routed
		return out
	}
	return out
}
