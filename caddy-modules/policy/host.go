package policy

import (
	"net/netip"
	"strings"
)

// Limits of RFC 1035 section 2.3.4, in bytes; a name is counted without its root
// dot.
const (
	maxName  = 253
	maxLabel = 63
)

// Host is a canonical host: a lower-case name without root dot, or an address
// without zone and with an IPv4-mapped address as IPv4. Two hosts are the same
// exactly when they are ==. The zero Host is no host at all.
type Host struct {
	name string
	addr netip.Addr
}

// ParseHost reads a host as it stands on the wire: a name with or without one
// root dot, dotted decimal IPv4, or IPv6 with or without brackets. Malformed
// text gives a *SyntaxError.
//
// A name is made of letters, digits, hyphens and underscores (RFC 1123 and what
// is found in practice). Nothing is trimmed, decoded or mapped: whoever sends
// U-labels, percent-encoding or a blank gets an error, since the next parser
// could read it as another name. IPv4 has the one spelling of RFC 6943 section
// 3.1.1; everything else that inet_aton would take is malformed. An IPv6 zone
// (RFC 6874) is dropped from a link-local address and malformed on any other,
// where it could only serve to carry text that looks like an allowed name.
func ParseHost(text string) (Host, error) {
	if strings.HasPrefix(text, "[") {
		inner, ok := strings.CutSuffix(text[1:], "]")
		if !ok {
			return Host{}, malformed(text, "has an opening bracket without its closing one at the end")
		}
		return parseBracketed(text, inner)
	}
	if strings.Contains(text, ":") {
		return parseIPv6(text, text)
	}
	return ParseName(text)
}

// ParseName reads a name or dotted decimal IPv4 and nothing else, which is what a
// DOMAINNAME of SOCKS (RFC 1928 section 5) and a DNS question may hold: IPv6 text
// there is malformed, so that it is never dialled as an address by accident.
func ParseName(text string) (Host, error) {
	if text == "" {
		return Host{}, malformed(text, "is no host: it is empty")
	}
	if reason := badByte(text); reason != "" {
		return Host{}, malformed(text, reason)
	}
	name := strings.TrimSuffix(text, ".")
	if name == "" {
		return Host{}, malformed(text, "is the DNS root, not a host")
	}
	if endsInNumber(name) {
		return parseIPv4(text)
	}
	if err := checkLabels(text, name); err != nil {
		return Host{}, err
	}
	return Host{name: strings.ToLower(name)}, nil
}

// HostFromAddr is the host of an address: zone dropped, IPv4-mapped unmapped. An
// invalid address gives the zero Host.
func HostFromAddr(a netip.Addr) Host {
	return Host{addr: canonical(a)}
}

// Name is the canonical name, "" for an address.
func (h Host) Name() string { return h.name }

// Addr is the address, false for a name.
func (h Host) Addr() (netip.Addr, bool) { return h.addr, h.addr.IsValid() }

// IsZero says that h is no host: nothing parsed it.
func (h Host) IsZero() bool { return h == Host{} }

// ThisMachine says that h is a name that means this machine (RFC 6761 section 6.3),
// whatever a resolver says of it. No address is one.
func (h Host) ThisMachine() bool { return thisMachine(h.name) }

// String is the canonical text: the name, or the address without brackets.
func (h Host) String() string {
	switch {
	case h.name != "":
		return h.name
	case h.addr.IsValid():
		return h.addr.String()
	default:
		return ""
	}
}

// canonical is the one form in which addresses are compared. Prefix.Contains is
// false for any address with a zone, and for a mapped address under an IPv4
// prefix; a check on the raw address would fail open.
func canonical(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

// parseBracketed reads the text between brackets, where RFC 3986 section 3.2.2
// allows IPv6 (with the zone of RFC 6874) and a future form that nothing uses.
func parseBracketed(text, inner string) (Host, error) {
	if !strings.Contains(inner, ":") {
		return Host{}, malformed(text, "has brackets around something other than an IPv6 address")
	}
	return parseIPv6(text, inner)
}

func parseIPv6(text, address string) (Host, error) {
	address, zone, zoned := strings.Cut(address, "%")
	a, err := netip.ParseAddr(address)
	if err != nil || a.Is4() {
		if reason := badByte(address); reason != "" && reason != colon {
			return Host{}, malformed(text, reason)
		}
		return Host{}, malformed(text, "is no IPv6 address")
	}
	if zoned {
		// Link-local alone needs a zone (RFC 4007 section 11). Go's dialler
		// ignores the zone of ::1 and of mapped addresses, and reaches them.
		if a.Is4In6() || !a.IsLinkLocalUnicast() {
			return Host{}, malformed(text, "has an IPv6 zone on an address that is not link-local")
		}
		// In a URL the percent sign itself is written %25 (RFC 6874).
		if escaped, ok := strings.CutPrefix(zone, "25"); ok && escaped != "" {
			zone = escaped
		}
		if !isZone(zone) {
			return Host{}, malformed(text, "has an IPv6 zone that names no interface")
		}
	}
	return HostFromAddr(a), nil
}

// isZone says that the zone could be the name or number of an interface: Linux
// allows 15 bytes (IFNAMSIZ less the NUL).
func isZone(zone string) bool {
	if zone == "" || len(zone) > 15 || !isAlnum(zone[0]) {
		return false
	}
	for i := range len(zone) {
		switch c := zone[i]; {
		case isAlnum(c), c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// parseIPv4 takes dotted decimal without leading zeros. The root dot is refused
// as well: "169.254.169.254." is a name to some resolvers and an address to
// others.
func parseIPv4(text string) (Host, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return Host{}, malformed(text, "ends in a number but is no dotted decimal IPv4 address (four parts of 0 to 255, no leading zeros)")
	}
	return Host{addr: a}, nil
}

// endsInNumber is the "ends in a number" check of the WHATWG URL standard: such a
// host is an IPv4 address to URL parsers and to inet_aton, whatever stands before
// it, so it is never a name here.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return false
	}
	digits := isDigit
	if len(last) >= 2 && last[0] == '0' && (last[1] == 'x' || last[1] == 'X') {
		last, digits = last[2:], isHex
	}
	for i := range len(last) {
		if !digits(last[i]) {
			return false
		}
	}
	return true
}

// colon is the reason that, before IPv6 text was tried, says nothing yet.
const colon = "holds a colon"

// badByte names the first byte that no label may hold, "" for none.
func badByte(text string) string {
	for i := range len(text) {
		switch c := text[i]; {
		case isAlnum(c), c == '-', c == '_', c == '.':
		case c == 0:
			return "holds a NUL byte"
		case c == '\r' || c == '\n':
			return "holds a line break"
		case c == ' ' || c == '\t':
			return "holds a blank"
		case c < ' ' || c == 0x7f:
			return "holds a control byte"
		case c >= 0x80:
			return "holds bytes outside ASCII: send the A-label (xn--...) instead"
		case c == '*':
			return "holds a star: that is a pattern, not a host"
		case c == '%':
			return "holds a percent sign: nothing is decoded in a host"
		case c == '@':
			return "holds an at sign: user information is not allowed"
		case c == ':':
			return colon
		default:
			return "holds the byte " + quote(text[i:i+1]) + ", which no host name may hold"
		}
	}
	return ""
}

// checkLabels checks lengths and hyphens of a name whose bytes are checked.
func checkLabels(text, name string) error {
	if len(name) > maxName {
		return malformed(text, "is longer than the 253 bytes of a DNS name")
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return malformed(text, "has an empty label")
		case len(label) > maxLabel:
			return malformed(text, "has a label longer than 63 bytes")
		case label[0] == '-' || label[len(label)-1] == '-':
			return malformed(text, "has a label that starts or ends with a hyphen")
		}
	}
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isAlnum(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
