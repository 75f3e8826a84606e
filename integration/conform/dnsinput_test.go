package main

import (
	"errors"
	"testing"

	"github.com/miekg/dns"
)

func TestParseDNS(t *testing.T) {
	for _, tt := range []struct {
		input     string
		questions int
		check     func(in dnsInput, m *dns.Msg) bool
	}{
		{"api.github.com. A", 1, func(_ dnsInput, m *dns.Msg) bool {
			return m.Question[0] == dns.Question{Name: "api.github.com.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
		}},
		{"version.bind. TXT CH", 1, func(_ dnsInput, m *dns.Msg) bool { return m.Question[0].Qclass == dns.ClassCHAOS }},
		{"a. A + b. aaaa", 2, func(_ dnsInput, m *dns.Msg) bool { return m.Question[1].Qtype == dns.TypeAAAA }},
		{"(no question)", 0, nil},
		{"(opcode UPDATE) a. A", 1, func(_ dnsInput, m *dns.Msg) bool { return m.Opcode == dns.OpcodeUpdate }},
		{"(QR=1) a. A", 1, func(_ dnsInput, m *dns.Msg) bool { return m.Response }},
		{"a. A (EDNS client subnet)", 1, func(_ dnsInput, m *dns.Msg) bool { return len(m.IsEdns0().Option) == 1 }},
		{"a. A (TC, retry over TCP)", 1, func(in dnsInput, _ *dns.Msg) bool { return in.says("tcp") && !in.scripted }},
		{"a. A => 140.82.112.5, 10.0.0.5", 1, func(in dnsInput, _ *dns.Msg) bool { return in.scripted && len(in.answer.Addrs) == 2 }},
		{"a. A => (answer for other.com.)", 1, func(in dnsInput, _ *dns.Msg) bool { return in.answer.Owner == "other.com." }},
		{"a. A => CNAME b.example., 10.0.0.5", 1, func(in dnsInput, _ *dns.Msg) bool {
			return in.answer.CNAME == "b.example." && len(in.answer.Addrs) == 1
		}},
		{"a. A => NXDOMAIN", 1, func(in dnsInput, _ *dns.Msg) bool { return in.answer.Rcode == dns.RcodeNameError }},
	} {
		in, err := parseDNS(tt.input)
		if err != nil || len(in.questions) != tt.questions {
			t.Errorf("%q: %+v, %v", tt.input, in, err)
			continue
		}
		m := in.message()
		if tt.check != nil && !tt.check(in, m) {
			t.Errorf("%q: %+v\n%v", tt.input, in, m)
		}
		if _, err := m.Pack(); err != nil {
			t.Errorf("%q cannot be sent: %v", tt.input, err)
		}
	}
	for input, isRemark := range map[string]bool{"a. A (by carrier pigeon)": true, "a. A => (nothing)": true, "a. NOTYPE": false, "a. A XX": false, "a..b. A": false, "a. A => b..c": false} {
		if _, err := parseDNS(input); err == nil || errors.Is(err, errRemark) != isRemark {
			t.Errorf("%q: %v", input, err)
		}
	}
}
