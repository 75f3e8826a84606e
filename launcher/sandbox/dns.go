package sandbox

import (
	"fmt"
	"net/netip"
)

// DNSMode is how names are looked up in a sandbox.
type DNSMode string

// The modes.
const (
	// DNSAuto is DNSFake where the sandbox can have the sockets, else DNSOff.
	DNSAuto DNSMode = "auto"

	// DNSFake answers each allowed name with an address that stands for it, where
	// connections to the usual ports are led through the proxies' rules. So what ignores
	// every proxy variable works, too.
	DNSFake DNSMode = "fake"

	// DNSAnswer answers with real addresses, to which nothing leads: it is for programs
	// that look a name up, and then ask a proxy.
	DNSAnswer DNSMode = "answer"

	// DNSOff answers nothing; only the proxies know names.
	DNSOff DNSMode = "off"
)

// ParseDNSMode reads a mode; empty means auto.
func ParseDNSMode(text string) (DNSMode, error) {
	switch m := DNSMode(text); m {
	case "":
		return DNSAuto, nil
	case DNSAuto, DNSFake, DNSAnswer, DNSOff:
		return m, nil
	}
	return "", fmt.Errorf("parse DNS mode %q: want auto, fake, answer or off", text)
}

// DNSPort is where a resolver is asked.
const DNSPort = 53

// transparentPorts are those of the clients that are led through the rules although they
// use no proxy: HTTPS, HTTP, SSH.
var transparentPorts = []uint16{443, 80, 22}

// The addresses of which fake ones are taken: the range that is set aside for benchmarks
// of networks (RFC 2544), and a private one of our own (RFC 4193).
var (
	fakeRange4 = netip.MustParsePrefix("198.18.0.0/15")
	fakeRange6 = netip.MustParsePrefix("fd00:706f:7374::/64")
)

// DNSSockets are the sockets that a mode needs, see Options.Low: those of a resolver at
// 127.0.0.1, where /etc/resolv.conf of every sandbox has it, and for fake addresses, of
// which Options.Any makes the sandbox's own, those of their clients.
func DNSSockets(mode DNSMode) []LowPort {
	if mode == DNSOff {
		return nil
	}
	resolver := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), DNSPort)
	out := []LowPort{{"udp", resolver}, {"tcp", resolver}}
	if mode == DNSAnswer {
		return out
	}
	for _, every := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		for _, port := range transparentPorts {
			out = append(out, LowPort{"tcp", netip.AddrPortFrom(every, port)})
		}
	}
	return out
}
