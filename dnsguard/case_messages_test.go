package dnsguard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// repeated expands {c*N}.
func repeated(t *testing.T, text string) string {
	t.Helper()
	for {
		before, rest, found := strings.Cut(text, "{")
		if !found {
			return text
		}
		spec, after, _ := strings.Cut(rest, "}")
		what, count, _ := strings.Cut(spec, "*")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("repeat %q", spec)
		}
		text = before + strings.Repeat(what, n) + after
	}
}

func (q caseQuery) message(t *testing.T) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	m.Id = 4711
	m.RecursionDesired = true
	m.Response = q.QR
	ask := func(name, qtype, class string) dns.Question {
		out := dns.Question{Name: dns.Fqdn(repeated(t, name)), Qtype: dns.StringToType[qtype], Qclass: dns.ClassINET}
		if number, ok := strings.CutPrefix(qtype, "TYPE"); ok {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			out.Qtype = uint16(n)
		}
		if class != "" {
			out.Qclass = dns.StringToClass[class]
		}
		if out.Qtype == 0 {
			t.Fatalf("unknown type %q", qtype)
		}
		return out
	}
	m.Question = []dns.Question{ask(q.Name, q.Type, q.Class)}
	if q.Opcode != "" {
		m.Opcode = dns.StringToOpcode[q.Opcode]
	}
	if q.ExtraQuestion != "" {
		name, qtype, _ := strings.Cut(q.ExtraQuestion, " ")
		m.Question = append(m.Question, ask(name, qtype, ""))
	}
	for _, text := range q.Answer {
		m.Answer = append(m.Answer, rr(text, ""))
	}
	if string(q.EDNS) == "false" {
		return m
	}
	m.SetEdns0(1232, false)
	if len(q.EDNS) == 0 {
		return m
	}
	var edns struct {
		Size       uint16
		Cookie     string
		Local65001 string
		Padding    int
		Version    uint8
	}
	dec := json.NewDecoder(bytes.NewReader(q.EDNS))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&edns); err != nil {
		t.Fatal(err)
	}
	opt := m.IsEdns0()
	opt.SetVersion(edns.Version)
	if edns.Size > 0 {
		opt.SetUDPSize(edns.Size)
	}
	if edns.Cookie != "" {
		opt.Option = append(opt.Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: edns.Cookie})
	}
	if edns.Local65001 != "" {
		data, err := hex.DecodeString(edns.Local65001)
		if err != nil {
			t.Fatal(err)
		}
		opt.Option = append(opt.Option, &dns.EDNS0_LOCAL{Code: 65001, Data: data})
	}
	if edns.Padding > 0 {
		opt.Option = append(opt.Option, &dns.EDNS0_PADDING{Padding: make([]byte, edns.Padding)})
	}
	return m
}

// script makes the fake upstream say what the case says.
func (u *caseUpstream) script(t *testing.T) func(q *dns.Msg, proto string) [][]byte {
	t.Helper()
	if u == nil {
		return silence
	}
	return func(q *dns.Msg, proto string) [][]byte {
		if u.First != nil {
			return append(u.First.script(t)(q, proto), u.Then.script(t)(q, proto)...)
		}
		if u.TC && proto == TCP {
			return u.ThenTCP.script(t)(q, proto)
		}
		m := reply(q)
		m.Truncated = u.TC
		if u.QR != nil {
			m.Response = *u.QR
		}
		if u.Rcode != "" {
			m.Rcode = dns.StringToRcode[u.Rcode]
		}
		for section, lines := range map[*[]dns.RR][]string{&m.Answer: u.Answer, &m.Ns: u.Authority, &m.Extra: u.Additional} {
			for _, line := range lines {
				*section = append(*section, rr(repeated(t, line), ""))
			}
		}
		if u.EDNS != nil {
			m.SetEdns0(1232, false)
			opt := m.IsEdns0()
			code, text, _ := strings.Cut(u.EDNS["ede"], ":")
			n, err := strconv.ParseUint(code, 10, 16)
			if err != nil {
				t.Error(err)
			}
			opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: uint16(n), ExtraText: text},
				&dns.EDNS0_LOCAL{Code: 65001, Data: []byte(u.EDNS["local65001"])})
		}
		return pack(m)
	}
}

func data(section []dns.RR) []string {
	out := []string{}
	for _, record := range section {
		h := record.Header()
		text := strings.TrimPrefix(record.String(), h.String())
		out = append(out, strings.TrimSuffix(h.Name, ".")+" "+dns.Type(h.Rrtype).String()+" "+text)
	}
	return sorted(out)
}

func sorted(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return out
}

// options lists the EDNS options of a message but for an explanation of ours.
func options(m *dns.Msg) []string {
	out := []string{}
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			out = append(out, fmt.Sprint(o.Option()))
		}
	}
	return out
}

func edes(m *dns.Msg) []int {
	var out []int
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				out = append(out, int(e.InfoCode))
			}
		}
	}
	return out
}
