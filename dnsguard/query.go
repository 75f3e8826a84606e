package dnsguard

import (
	"crypto/rand"
	"strings"

	"github.com/miekg/dns"
)

// ednsSize is the UDP payload size advertised upstream: what passes any path
// without fragments (DNS flag day 2020). Fragments can be spoofed in halves.
const ednsSize = 1232

// newQuery builds the message that leaves. Nothing of a client's message is
// copied: not its ID, its letter case, its options nor its flags, each of which
// could carry data out. No DO bit: signatures would only make answers larger
// for clients that never see them.
func newQuery(name string, qtype uint16, mixCase bool) *dns.Msg {
	q := new(dns.Msg)
	q.Id = dns.Id()
	q.RecursionDesired = true
	fqdn := name + "."
	if mixCase {
		fqdn = mixedCase(fqdn)
	}
	q.Question = []dns.Question{{Name: fqdn, Qtype: qtype, Qclass: dns.ClassINET}}
	q.SetEdns0(ednsSize, false)
	return q
}

// mixedCase flips the case of letters at random (draft-vixie-dnsext-dns0x20): a
// forger who does not see the query must guess a bit for each letter.
func mixedCase(name string) string {
	text := []byte(name)
	bits := make([]byte, (len(text)+7)/8)
	_, _ = rand.Read(bits) // crypto/rand never fails since Go 1.24
	for i, c := range text {
		if 'a' <= c && c <= 'z' && bits[i/8]>>(i%8)&1 == 1 {
			text[i] = c - 'a' + 'A'
		}
	}
	return string(text)
}

// match says how a reply fits a query.
type match uint8

const (
	matchNone   match = iota // somebody else's, or forged: as if it had not come
	matchUnsure              // right ID, but the case differs, it is cut, or it names no question
	matchFull
)

// matchReply checks what ties a reply to its query: ID, QR, opcode and the whole
// question. miekg/dns checks the ID only. Letter case counts where the transport
// does not authenticate the peer.
func matchReply(reply, query *dns.Msg, exactCase bool) match {
	if !reply.Response || reply.Id != query.Id || reply.Opcode != dns.OpcodeQuery {
		return matchNone
	}
	if len(reply.Question) == 0 && reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		// Some resolvers refuse with a bare header. Believing it over UDP would
		// make failures cheap to forge.
		return matchUnsure
	}
	if len(reply.Question) != 1 {
		return matchNone
	}
	got, want := reply.Question[0], query.Question[0]
	if got.Qtype != want.Qtype || got.Qclass != want.Qclass || !strings.EqualFold(got.Name, want.Name) {
		return matchNone
	}
	if reply.Truncated || exactCase && got.Name != want.Name {
		return matchUnsure
	}
	return matchFull
}
