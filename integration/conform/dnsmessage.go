package main

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// repeated expands {c*N}, N times the character c.
func repeated(text string) (string, error) {
	for {
		before, rest, found := strings.Cut(text, "{")
		if !found {
			return text, nil
		}
		spec, after, _ := strings.Cut(rest, "}")
		what, count, _ := strings.Cut(spec, "*")
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 || n > 1<<16 {
			return "", fmt.Errorf("parse {%s}: want {c*N}", spec)
		}
		text = before + strings.Repeat(what, n) + after
	}
}

// wire is the query as it is sent.
func (q *dnsQuery) wire(id uint16) ([]byte, error) {
	if q.Raw != "" {
		raw, err := hex.DecodeString(q.Raw)
		if err != nil {
			return nil, fmt.Errorf("parse query.raw: %w", err)
		}
		return raw, nil
	}
	m, err := q.message()
	if err != nil {
		return nil, err
	}
	m.Id = id
	raw, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack the query: %w", err)
	}
	return raw, nil
}

func (q *dnsQuery) message() (*dns.Msg, error) {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{RecursionDesired: true, Response: q.QR}}
	first, err := parseQuestion(q.Name, q.Type, q.Class)
	if err != nil {
		return nil, err
	}
	m.Question = []dns.Question{first}
	if q.Opcode != "" {
		op, ok := dns.StringToOpcode[q.Opcode]
		if !ok {
			return nil, fmt.Errorf("parse query.opcode: no opcode %q", q.Opcode)
		}
		m.Opcode = op
	}
	if q.ExtraQuestion != "" {
		name, kind, _ := strings.Cut(q.ExtraQuestion, " ")
		more, err := parseQuestion(name, kind, "")
		if err != nil {
			return nil, err
		}
		m.Question = append(m.Question, more)
	}
	if m.Answer, err = parseRecords(q.Answer); err != nil {
		return nil, err
	}
	return m, q.EDNS.put(m)
}

func parseQuestion(name, kind, class string) (dns.Question, error) {
	name, err := repeated(name)
	if err != nil {
		return dns.Question{}, err
	}
	q := dns.Question{Name: dns.Fqdn(name), Qtype: dns.StringToType[kind], Qclass: dns.ClassINET}
	if number, ok := strings.CutPrefix(kind, "TYPE"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return q, fmt.Errorf("parse query.type: %w", err)
		}
		q.Qtype = uint16(n)
	}
	if class != "" {
		q.Qclass = dns.StringToClass[class]
	}
	if q.Qtype == 0 || q.Qclass == 0 {
		return q, fmt.Errorf("parse query: no type %q, or no class %q", kind, class)
	}
	return q, nil
}

func parseRecords(lines []string) ([]dns.RR, error) {
	var out []dns.RR
	for _, line := range lines {
		line, err := repeated(line)
		if err != nil {
			return nil, err
		}
		rr, err := dns.NewRR(line)
		if err != nil {
			return nil, fmt.Errorf("parse record: %w", err)
		}
		out = append(out, rr)
	}
	return out, nil
}

// put adds the client's OPT record; a case that says nothing of one has a plain one.
func (e *dnsEDNS) put(m *dns.Msg) error {
	if e != nil && e.none {
		return nil
	}
	m.SetEdns0(1232, false)
	if e == nil {
		return nil
	}
	opt := m.IsEdns0()
	opt.SetVersion(e.Version)
	if e.Size > 0 {
		opt.SetUDPSize(e.Size)
	}
	if e.Cookie != "" {
		opt.Option = append(opt.Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: e.Cookie})
	}
	if e.Local65001 != "" {
		data, err := hex.DecodeString(e.Local65001)
		if err != nil {
			return fmt.Errorf("parse query.edns.local65001: %w", err)
		}
		opt.Option = append(opt.Option, &dns.EDNS0_LOCAL{Code: 65001, Data: data})
	}
	if e.Padding > 0 {
		opt.Option = append(opt.Option, &dns.EDNS0_PADDING{Padding: make([]byte, e.Padding)})
	}
	return nil
}

// vet reads the records, so that script need not fail.
func (u *dnsUpstream) vet() error {
	if u == nil {
		return nil
	}
	if _, ok := dns.StringToRcode[u.Rcode]; !ok && u.Rcode != "" {
		return fmt.Errorf("parse upstream.rcode: no code %q", u.Rcode)
	}
	for _, section := range [][]string{u.Answer, u.Authority, u.Additional} {
		if _, err := parseRecords(section); err != nil {
			return err
		}
	}
	for key := range u.EDNS {
		if key != "ede" && key != "local65001" {
			return fmt.Errorf("parse upstream.edns: %q is not known", key)
		}
	}
	if _, _, err := u.explanation(); err != nil {
		return err
	}
	for _, next := range []*dnsUpstream{u.ThenTCP, u.First, u.Then} {
		if err := next.vet(); err != nil {
			return err
		}
	}
	return nil
}

// explanation is the extended error of the upstream, as NUMBER or NUMBER:TEXT.
func (u *dnsUpstream) explanation() (code uint16, text string, err error) {
	whole, there := u.EDNS["ede"]
	if !there {
		return 0, "", nil
	}
	number, text, _ := strings.Cut(whole, ":")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return 0, "", fmt.Errorf("parse upstream.edns.ede %q: want NUMBER:TEXT: %w", whole, err)
	}
	return uint16(n), text, nil
}

// script gives the packets that the upstream answers a message with.
func (u *dnsUpstream) script(q *dns.Msg, tcp bool) [][]byte {
	switch {
	case u == nil:
		return nil
	case u.First != nil:
		return append(u.First.script(q, tcp), u.Then.script(q, tcp)...)
	case u.TC && tcp:
		return u.ThenTCP.script(q, tcp)
	}
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable, m.Truncated = true, u.TC
	if u.QR != nil {
		m.Response = *u.QR
	}
	m.Rcode = dns.StringToRcode[u.Rcode]
	m.Answer, _ = parseRecords(u.Answer) // vet has read them
	m.Ns, _ = parseRecords(u.Authority)
	m.Extra, _ = parseRecords(u.Additional)
	if u.EDNS != nil {
		m.SetEdns0(1232, false)
		code, text, _ := u.explanation() // vet has read it
		opt := m.IsEdns0()
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: code, ExtraText: text},
			&dns.EDNS0_LOCAL{Code: 65001, Data: []byte(u.EDNS["local65001"])})
	}
	return packed(m)
}

// anyAddr is what names answer that a case only needs to be there.
var anyAddr = netip.MustParseAddr("93.184.216.10")

// answerAll gives every name that address.
func answerAll(q *dns.Msg, _ bool) [][]byte {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	if q.Question[0].Qtype == dns.TypeA {
		h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
		m.Answer = []dns.RR{&dns.A{Hdr: h, A: anyAddr.AsSlice()}}
	}
	return packed(m)
}

func packed(m *dns.Msg) [][]byte {
	raw, err := m.Pack()
	if err != nil {
		return nil
	}
	return [][]byte{raw}
}

// recordData is a section as a sorted list of NAME TYPE RDATA.
func recordData(section []dns.RR) []string {
	out := []string{}
	for _, rr := range section {
		h := rr.Header()
		out = append(out, strings.TrimSuffix(h.Name, ".")+" "+dns.Type(h.Rrtype).String()+" "+strings.TrimPrefix(rr.String(), h.String()))
	}
	slices.Sort(out)
	return out
}

// optionCodes lists the EDNS options of a message, and the codes of the explanations
// among them.
func optionCodes(m *dns.Msg) (options []string, explained []int) {
	options = []string{}
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				explained = append(explained, int(e.InfoCode))
			}
			options = append(options, strconv.Itoa(int(o.Option())))
		}
	}
	return options, explained
}
