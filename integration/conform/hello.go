package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// helloPlan is how a ClientHello goes out: pieces, each one write, with a pause
// between them.
type helloPlan struct {
	pieces [][]byte
	pause  time.Duration
	early  bool // the first piece goes out together with the CONNECT
	late   bool // nothing goes out until the hello deadline has passed
}

func (p helloPlan) bytes() []byte { return bytes.Join(p.pieces, nil) }

// planHello makes the ClientHello of a case's tls_variant with this server name;
// an empty name leaves the extension out. ok is false for a variant that is not
// known.
func planHello(variant word, name string) (p helloPlan, ok bool) {
	h := hello{name: name}
	whole := func() [][]byte { return [][]byte{record(h.message())} }
	switch {
	case variant == "":
		p.pieces = whole()
	case variant.oneOf("byte_by_byte", "bytewise", "one_byte", "one_byte_segments"):
		for _, b := range record(h.message()) {
			p.pieces = append(p.pieces, []byte{b})
		}
		p.pause = time.Millisecond
	case variant.oneOf("split", "two_segments", "two_packets", "split_segments"):
		raw := record(h.message())
		p.pieces, p.pause = [][]byte{raw[:len(raw)/2], raw[len(raw)/2:]}, 50*time.Millisecond
	case variant.oneOf("two_records", "split_records", "fragmented", "record_split"):
		m := h.message()
		cut := len(m) / 2
		if i := bytes.Index(m, []byte(name)); name != "" && i > 0 {
			cut = i + len(name)/2 // through the name itself
		}
		p.pieces = [][]byte{append(record(m[:cut]), record(m[cut:])...)}
	case variant.oneOf("many_records", "one_byte_records"):
		m := h.message()
		var raw []byte
		for len(m) > 0 {
			n := min(len(m), 64)
			raw, m = append(raw, record(m[:n])...), m[n:]
		}
		p.pieces = [][]byte{raw}
	case variant.oneOf("sni_after_1024", "pq", "post_quantum", "large", "sni_late"):
		h.bulk, h.bulkFirst = 1500, true
		p.pieces = whole()
	case variant.oneOf("oversize", "oversized", "too_large", "huge"):
		h.bulk, h.bulkFirst = 20000, true
		m := h.message()
		p.pieces = [][]byte{record(m[:16000]), record(m[16000:])}
	case variant.oneOf("late_hello", "late", "silent"):
		p.pieces, p.late = whole(), true
	case variant.oneOf("pipelined", "early", "one_packet"):
		p.pieces, p.early = whole(), true
	case variant.oneOf("ech", "ech_outer", "grease_ech"):
		h.ech = true
		p.pieces = whole()
	case variant.oneOf("no_sni", "without_sni"):
		h.name = ""
		p.pieces = whole()
	case variant.oneOf("duplicate_sni", "two_names"):
		h.names = []string{name, "other.example"}
		p.pieces = whole()
	case variant.oneOf("no_tls", "not_tls", "plaintext", "cleartext"):
		p.pieces = [][]byte{fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name)}
	default:
		return p, false
	}
	return p, true
}

// hello is a ClientHello (RFC 8446 section 4.1.2) such as a browser sends.
type hello struct {
	name      string
	names     []string // instead of name: several in one extension
	bulk      int      // bytes of a big extension, as a post-quantum key share is
	bulkFirst bool     // which comes before the server name
	ech       bool
}

// message is the handshake message with its header.
func (h hello) message() []byte {
	var ext []byte
	add := func(kind uint16, data []byte) {
		ext = binary.BigEndian.AppendUint16(ext, kind)
		ext = append(binary.BigEndian.AppendUint16(ext, uint16(len(data))), data...)
	}
	if h.bulk > 0 && h.bulkFirst {
		add(21, make([]byte, h.bulk)) // padding, RFC 7685
	}
	names := h.names
	if names == nil && h.name != "" {
		names = []string{h.name}
	}
	if len(names) > 0 {
		var list []byte
		for _, n := range names {
			list = append(list, 0) // host_name
			list = append(binary.BigEndian.AppendUint16(list, uint16(len(n))), n...)
		}
		add(0, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...))
	}
	add(43, []byte{4, 3, 4, 3, 3})                                               // supported_versions 1.3, 1.2
	add(10, []byte{0, 4, 0, 29, 0, 23})                                          // supported_groups x25519, secp256r1
	add(13, []byte{0, 6, 4, 3, 8, 4, 4, 1})                                      // signature_algorithms
	add(51, append([]byte{0, 36, 0, 29, 0, 32}, bytes.Repeat([]byte{7}, 32)...)) // key_share
	if h.ech {
		// encrypted_client_hello, outer: HKDF-SHA256, AES-128-GCM, config 1.
		enc := append([]byte{0, 0, 1, 0, 1, 1, 0, 32}, bytes.Repeat([]byte{9}, 32)...)
		add(0xfe0d, append(append(enc, 0, 64), bytes.Repeat([]byte{8}, 64)...))
	}
	body := []byte{3, 3}
	body = append(body, bytes.Repeat([]byte{0x5a}, 32)...) // random
	body = append(body, 32)
	body = append(body, bytes.Repeat([]byte{0xa5}, 32)...)     // session id
	body = append(body, 0, 6, 0x13, 1, 0x13, 2, 0x13, 3, 1, 0) // cipher suites, compression
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(ext))), ext...)
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

// record wraps a fragment in a TLS record of the version that a first flight
// has.
func record(fragment []byte) []byte {
	return append([]byte{22, 3, 1, byte(len(fragment) >> 8), byte(len(fragment))}, fragment...)
}
