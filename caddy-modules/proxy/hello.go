package proxy

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"postern/caddy-modules/policy"
)

// What TLS in a tunnel must look like. On port 443 there must be TLS. On any
// other port of a name, whatever begins as TLS is held to the same.
//
// The first bytes must be TLS records that carry one ClientHello (RFC 8446
// sections 4.1.2 and 5.1), however many segments or records it comes in, and its
// server_name (RFC 6066 section 3) must be the host of the CONNECT. Otherwise a
// client that may reach one host of a CDN reaches every other one. In detail:
//
//	server name, any case, equals the host          allowed
//	another name, even one the policy allows        sni_mismatch
//	the outer name of ECH differs                   sni_mismatch
//	an address, a root dot, a NUL in the name       sni_mismatch
//	none, and the target is a name                  sni_missing
//	none, and the target is an address              allowed (RFC 6066 forbids one)
//	no TLS, also when the server speaks first       not_tls, hello_timeout
//	a second name, extra bytes, wrong lengths       hello_malformed
//	more than Limits.HelloSize                      hello_too_large
//	silence past Limits.Hello                       hello_timeout
//
// Three things it cannot see. With ECH whose outer name is the host itself, the
// inner name is between the client and that host; browsers send a meaningless
// ECH extension always, so its presence says nothing. And the Host header inside
// the TLS is not readable without breaking it open: a server that ignores its
// own certificate's names can still be used as a front. And on ports other than
// 80 and 443, which a rule must name, a protocol that is not TLS from its first
// byte says what it likes: STARTTLS, or HTTP with any Host.

// Record and handshake types, RFC 8446 appendix B.
const (
	recordHandshake    = 22
	recordVersion      = 3 // major, of every version
	handshakeHello     = 1
	extensionName      = 0
	nameTypeHost       = 0
	maxRecord          = 16 << 10
	recordHeader       = 5
	handshakeHeader    = 4
	maxHelloExtensions = 128
	maxHelloRecords    = 16 // honest clients use one, sometimes three
)

// readHello judges the first bytes of a tunnel. more says that they are fine so
// far and not complete. name is the server name as it was sent.
func readHello(b []byte, host policy.Host, limit int) (v HelloVerdict, name string, more bool) {
	message, v, more := helloMessage(b, limit)
	if v.Refuses() || more {
		return v, "", more
	}
	names, ok := helloNames(message)
	if !ok {
		return HelloMalformed, "", false
	}
	_, literal := host.Addr()
	switch {
	case len(names) == 0 && literal:
		return HelloOK, "", false
	case len(names) == 0:
		return HelloNoName, "", false
	case len(names) > 1:
		return HelloMalformed, names[0], false
	case sameHost(names[0], host):
		return HelloOK, names[0], false
	default:
		return HelloMismatch, names[0], false
	}
}

// sameHost compares a server name with the judged host. The name must be in the
// form RFC 6066 gives it, without root dot; "the same after normalising" is what
// two parsers disagree about.
func sameHost(name string, host policy.Host) bool {
	if addr, ok := host.Addr(); ok {
		a, err := netip.ParseAddr(name)
		return err == nil && a == addr
	}
	return strings.EqualFold(name, host.Name()) && isASCII(name)
}

// isASCII keeps EqualFold from taking the Kelvin sign for a k.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// helloMessage puts the handshake message together from its records. The result
// is the body of the ClientHello; it is a part of b when one record holds it.
func helloMessage(b []byte, limit int) (message []byte, v HelloVerdict, more bool) {
	var joined []byte
	need := -1 // bytes of the whole message, header included
	off := 0
	for range maxHelloRecords {
		rest := b[off:]
		// Each byte is judged as it comes: a client that speaks another
		// protocol need not send five bytes to be told.
		if v := checkRecordHeader(rest); v.Refuses() {
			return nil, v, false
		}
		if len(rest) < recordHeader {
			return nil, HelloNone, true
		}
		size := int(binary.BigEndian.Uint16(rest[3:]))
		if off+recordHeader+size > limit {
			return nil, HelloTooLarge, false
		}
		fragment := rest[recordHeader:min(len(rest), recordHeader+size)]
		if joined == nil {
			joined = fragment
		} else {
			joined = append(slices.Clip(joined), fragment...)
		}
		if len(joined) >= 1 && joined[0] != handshakeHello {
			return nil, HelloNotTLS, false
		}
		if need < 0 && len(joined) >= handshakeHeader {
			need = handshakeHeader + int(joined[1])<<16 + int(joined[2])<<8 + int(joined[3])
			if need > limit {
				return nil, HelloTooLarge, false
			}
		}
		switch {
		case need >= 0 && len(joined) == need:
			return joined[handshakeHeader:], HelloNone, false
		case need >= 0 && len(joined) > need:
			// A second message in the flight: no client sends one before
			// the server has answered.
			return nil, HelloMalformed, false
		case len(fragment) < size:
			return nil, HelloNone, true
		}
		off += recordHeader + size
	}
	return nil, HelloMalformed, false
}

// checkRecordHeader looks at as much of a record header as is there.
func checkRecordHeader(b []byte) HelloVerdict {
	switch {
	case len(b) >= 1 && b[0] != recordHandshake, len(b) >= 2 && b[1] != recordVersion:
		return HelloNotTLS
	case len(b) >= recordHeader:
		size := int(binary.BigEndian.Uint16(b[3:]))
		if size == 0 || size > maxRecord {
			return HelloMalformed
		}
	}
	return HelloNone
}

// cursor reads length-prefixed vectors (RFC 8446 section 3.4).
type cursor []byte

func (c *cursor) take(n int) ([]byte, bool) {
	if n > len(*c) {
		return nil, false
	}
	out := (*c)[:n]
	*c = (*c)[n:]
	return out, true
}

// vector reads a vector whose length is told in size bytes.
func (c *cursor) vector(size int) (cursor, bool) {
	head, ok := c.take(size)
	if !ok {
		return nil, false
	}
	n := 0
	for _, b := range head {
		n = n<<8 | int(b)
	}
	return c.take(n)
}

func (c *cursor) uint16() (uint16, bool) {
	b, ok := c.take(2)
	if !ok {
		return 0, false
	}
	return binary.BigEndian.Uint16(b), true
}

// helloNames reads the host names of a ClientHello's server_name extension. The
// whole message must parse to its last byte: what is left over is where another
// parser finds another name.
func helloNames(message []byte) (names []string, ok bool) {
	c := cursor(message)
	version, ok := c.uint16()
	if !ok || version>>8 != 3 {
		return nil, false
	}
	if _, ok := c.take(32); !ok { // random
		return nil, false
	}
	if session, ok := c.vector(1); !ok || len(session) > 32 {
		return nil, false
	}
	if suites, ok := c.vector(2); !ok || len(suites) < 2 || len(suites)%2 != 0 {
		return nil, false
	}
	if compressions, ok := c.vector(1); !ok || len(compressions) < 1 {
		return nil, false
	}
	if len(c) == 0 {
		return nil, true // TLS 1.2 and older may have no extensions at all
	}
	extensions, ok := c.vector(2)
	if !ok || len(c) != 0 {
		return nil, false
	}
	seen := make([]uint16, 0, maxHelloExtensions)
	for len(extensions) > 0 {
		kind, ok := extensions.uint16()
		if !ok || len(seen) == maxHelloExtensions {
			return nil, false
		}
		if slices.Contains(seen, kind) {
			return nil, false // RFC 8446 section 4.2: each type once
		}
		seen = append(seen, kind)
		data, ok := extensions.vector(2)
		if !ok {
			return nil, false
		}
		if kind != extensionName {
			continue
		}
		if names, ok = serverNames(data); !ok {
			return nil, false
		}
	}
	return names, true
}

func serverNames(data cursor) (names []string, ok bool) {
	list, ok := data.vector(2)
	if !ok || len(data) != 0 || len(list) == 0 {
		return nil, false
	}
	for len(list) > 0 {
		kind, ok := list.take(1)
		if !ok || kind[0] != nameTypeHost {
			return nil, false
		}
		name, ok := list.vector(2)
		if !ok || len(name) == 0 {
			return nil, false
		}
		names = append(names, string(name))
	}
	return names, true
}
