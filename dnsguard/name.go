package dnsguard

import (
	"net/netip"
	"strconv"
	"strings"

	"postern/caddy-modules/policy"
)

// parseName reads a name in the presentation form of RFC 1035 §5.1 that miekg/dns
// unpacks to, as a host. The form escapes every octet that could be taken for
// something else, so a label holding a dot prints as `evil\.github` and its text
// ends in a listed suffix although its labels do not. A host's letters never need
// an escape: a name that has none has exactly the labels that its dots show. Any
// other holds a backslash, and policy.ParseName refuses that octet like every
// other that is no host's, before anything compares text.
func parseName(presentation string) (policy.Host, error) {
	return policy.ParseName(strings.TrimSuffix(presentation, "."))
}

// subject is what a question asks about.
type subject struct {
	name string      // canonical: lower case, no root dot
	host policy.Host // of kindGlobal and kindLocalhost
	kind kind
	why  string // sentence for every kind but kindGlobal
}

// readName sorts a question's name. An error means that it is no host name at
// all, not even one that is answered here.
func readName(presentation string) (subject, error) {
	text := strings.ToLower(strings.TrimSuffix(presentation, "."))
	if text == "" {
		return subject{kind: kindSpecial, why: "the root is no host"}, nil
	}
	if !strings.Contains(text, `\`) && endsInNumber(text[strings.LastIndexByte(text, '.')+1:]) {
		return subject{name: text, kind: kindSpecial, why: "an address is not a name"}, nil
	}
	host, err := parseName(presentation)
	if err != nil {
		return subject{}, err
	}
	s := subject{name: host.Name(), host: host}
	s.kind, s.why = classify(host)
	return s, nil
}

// kind says who answers for a name.
type kind uint8

const (
	kindGlobal    kind = iota // policy decides, upstream answers
	kindLocalhost             // answered here with loopback (RFC 6761 §6.3)
	kindReverse               // answered here from the session's own pins
	kindSpecial               // never leaves: no unicast DNS server may know it
	kindSingle                // one label: leaves only where a rule has it verbatim, and a proxy asks
)

// special holds the top-level domains that must not reach a unicast resolver,
// listed or not: a query for one is either a mistake that tells a stranger
// about the inside, or meant for another protocol.
var special = map[string]string{
	"alt":         "RFC 9476 keeps .alt outside DNS",
	"arpa":        "infrastructure names are answered here",
	"internal":    ".internal is for private networks",
	"invalid":     "RFC 6761 §6.4",
	"lan":         "a home router's name",
	"local":       "RFC 6762 keeps .local for multicast DNS",
	"localdomain": "a host file's name",
	"onion":       "RFC 7686 keeps .onion for Tor",
	"test":        "RFC 6761 §6.2",
}

// classify sorts a name.
func classify(host policy.Host) (kind, string) {
	name := host.Name()
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case host.ThisMachine():
		return kindLocalhost, "localhost is answered here"
	case strings.HasSuffix(name, ".in-addr.arpa"), strings.HasSuffix(name, ".ip6.arpa"):
		return kindReverse, "reverse names are answered here"
	}
	if why, ok := special[last]; ok {
		return kindSpecial, why
	}
	if len(last) == len(name) {
		return kindSingle, "a single label is not forwarded for a program that asks by itself"
	}
	return kindGlobal, ""
}

// endsInNumber reports whether a host whose last label is this reads as an IPv4
// address somewhere (WHATWG URL, "ends in a number"): `127.1`, `1.2.3.0x7f`.
func endsInNumber(last string) bool {
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// reverseAddr reads the address out of a reverse name (RFC 1035 §3.5,
// RFC 3596 §2.5), canonical and complete or not at all.
func reverseAddr(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		labels := strings.Split(rest, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		var b [4]byte
		for i, label := range labels {
			n, err := strconv.ParseUint(label, 10, 8)
			if err != nil || strconv.FormatUint(n, 10) != label {
				return netip.Addr{}, false
			}
			b[3-i] = byte(n)
		}
		return netip.AddrFrom4(b), true
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i := range 32 {
		if i < 31 && rest[2*i+1] != '.' {
			return netip.Addr{}, false
		}
		nibble, err := strconv.ParseUint(rest[2*i:2*i+1], 16, 4)
		if err != nil {
			return netip.Addr{}, false
		}
		if i%2 == 0 {
			b[15-i/2] = byte(nibble)
		} else {
			b[15-i/2] |= byte(nibble) << 4
		}
	}
	return netip.AddrFrom16(b).Unmap(), true
}
