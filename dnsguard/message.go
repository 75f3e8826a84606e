package dnsguard

import (
	"time"

	"github.com/miekg/dns"
)

// maxExplain bounds the text of an extended error, in octets.
const maxExplain = 160

// message writes an answer as the reply to req. Every record is made here, under
// the name in the spelling of the question (RFC 1034 §4.3.3 leaves it to the
// server; clients that randomise case want it back).
func (g *Guard) message(req *dns.Msg, q question, a *answer, proto string) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(req)
	m.RecursionAvailable = true
	m.Rcode = a.rcode
	header := func(rrtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: q.text, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttlSeconds(a.ttl)}
	}
	for _, addr := range a.addrs {
		if q.qtype == dns.TypeAAAA {
			b := addr.As16()
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: b[:]})
		} else {
			b := addr.As4()
			m.Answer = append(m.Answer, &dns.A{Hdr: header(dns.TypeA), A: b[:]})
		}
	}
	for _, s := range a.services {
		m.Answer = append(m.Answer, &dns.SRV{
			Hdr: header(dns.TypeSRV), Priority: s.priority, Weight: s.weight, Port: s.port, Target: dns.Fqdn(s.target.Name()),
		})
	}
	for _, name := range a.names {
		m.Answer = append(m.Answer, &dns.PTR{Hdr: header(dns.TypePTR), Ptr: dns.Fqdn(name)})
	}
	if len(m.Answer) == 0 && a.ttl > 0 && (a.rcode == dns.RcodeSuccess || a.rcode == dns.RcodeNameError) {
		m.Ns = []dns.RR{absence(q.text, ttlSeconds(a.ttl))}
	}
	if q.opt != nil {
		m.Extra = []dns.RR{g.opt(a)}
	}
	m.Truncate(g.size(q, proto))
	m.Compress = true
	return m
}

// absence is the SOA record that lets a client keep a negative answer for ttl
// seconds (RFC 2308 §3). It is made up for the asked name: the zone's own would
// tell a name and a mailbox that somebody else wrote.
func absence(name string, ttl uint32) *dns.SOA {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  "localhost.", Mbox: "nobody.invalid.",
		Serial: 1, Refresh: 3600, Retry: 1200, Expire: 604800, Minttl: ttl,
	}
}

// opt is our own OPT record: none of the client's or upstream's options.
func (g *Guard) opt(a *answer) *dns.OPT {
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	opt.SetUDPSize(uint16(g.conf.UDPSize)) //nolint:gosec // at most 4096
	if a.ede != 0 {
		text := a.detail
		if len(text) > maxExplain {
			text = text[:maxExplain-3] + "..."
		}
		opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: a.ede, ExtraText: text}}
	}
	return opt
}

// size is the most octets a reply may have: over UDP what the client takes, at
// least 512 (RFC 6891 §6.2.3), and no more than passes without fragments.
func (g *Guard) size(q question, proto string) int {
	switch {
	case proto != UDP:
		return dns.MaxMsgSize
	case q.opt == nil:
		return dns.MinMsgSize
	default:
		return min(max(int(q.opt.UDPSize()), dns.MinMsgSize), g.conf.UDPSize)
	}
}

// ttlSeconds rounds up: what still holds never reads as over.
func ttlSeconds(ttl time.Duration) uint32 {
	return uint32((ttl + time.Second - 1) / time.Second) //nolint:gosec // at most a day
}
