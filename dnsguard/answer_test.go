package dnsguard

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// TestAnswerShapes sends messages that no rule needs to be known to refuse.
func TestAnswerShapes(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *dns.Msg)
		rcode  int
	}{
		{"no question", func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		{"three questions", func(m *dns.Msg) { m.Question = slices.Repeat(m.Question, 3) }, dns.RcodeFormatError},
		{"authority record", func(m *dns.Msg) { m.Ns = []dns.RR{rr("x.example. 1 IN TXT data", "")} }, dns.RcodeFormatError},
		{"additional record", func(m *dns.Msg) { m.Extra = append(m.Extra, rr("x.example. 1 IN TXT data", "")) }, dns.RcodeFormatError},
		{"two OPT", func(m *dns.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }, dns.RcodeFormatError},
		{"OPT with a name", func(m *dns.Msg) { m.Extra[0].Header().Name = "data.example." }, dns.RcodeFormatError},
		{"TSIG", func(m *dns.Msg) { m.SetTsig("key.", dns.HmacSHA256, 300, 0) }, dns.RcodeFormatError},
		{"EDNS version 1", func(m *dns.Msg) { m.IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		{"EDNS version 255", func(m *dns.Msg) { m.IsEdns0().SetVersion(255) }, dns.RcodeBadVers},
		{"no RD", func(m *dns.Msg) { m.RecursionDesired = false }, dns.RcodeRefused},
		{"class ANY", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }, dns.RcodeRefused},
		{"class NONE", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassNONE }, dns.RcodeRefused},
		{"class CH", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		{"class 0", func(m *dns.Msg) { m.Question[0].Qclass = 0 }, dns.RcodeRefused},
		{"NOTIFY", func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		{"STATUS", func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }, dns.RcodeNotImplemented},
		{"IQUERY", func(m *dns.Msg) { m.Opcode = dns.OpcodeIQuery }, dns.RcodeNotImplemented},
		{"UPDATE", func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		{"opcode 15", func(m *dns.Msg) { m.Opcode = 15 }, dns.RcodeNotImplemented},
		{"name with a dot in a label", func(m *dns.Msg) { m.Question[0].Name = `a\.b.example.com.` }, dns.RcodeRefused},
		{"name with NUL", func(m *dns.Msg) { m.Question[0].Name = `a\000.example.com.` }, dns.RcodeRefused},
		{"flags that mean nothing here", func(m *dns.Msg) {
			m.CheckingDisabled, m.AuthenticatedData, m.Zero, m.Authoritative, m.Truncated, m.RecursionAvailable = true, true, true, true, true, true
		}, dns.RcodeSuccess},
		{"response code in a query", func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, dns.RcodeSuccess},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, Config{})
			v := l.session(t, "s", "*.example.com")
			q := query("a.example.com", dns.TypeA)
			c.change(q)
			m := v.Answer(t.Context(), q, UDP)
			if m == nil || m.Rcode != c.rcode || m.Id != q.Id || !m.Response || m.Authoritative || m.Truncated || m.AuthenticatedData {
				t.Fatalf("%v", m)
			}
			if (m.IsEdns0() == nil) != (q.IsEdns0() == nil || c.name == "OPT with a name") {
				t.Errorf("OPT %v", m.Extra)
			}
			if _, err := m.Pack(); err != nil {
				t.Error(err)
			}
			seen, recorded := l.up.queries(), l.records.take()
			if c.rcode == dns.RcodeSuccess {
				if len(seen) != 1 {
					t.Errorf("%d queries", len(seen))
				}
				return
			}
			if len(m.Answer)+len(m.Ns) > 0 || len(seen) > 0 {
				t.Errorf("answer %v, %d upstream queries", m, len(seen))
			}
			if len(recorded) != 1 || recorded[0].Verdict == Allow || recorded[0].Detail == "" {
				t.Errorf("records %+v", recorded)
			}
		})
	}
	if m := newLab(t, Config{}).session(t, "s").Answer(t.Context(), nil, UDP); m != nil {
		t.Error("an answer to nothing")
	}
}

// TestAnswerTypes asks every record type there is. Only A and AAAA may leave.
func TestAnswerTypes(t *testing.T) {
	l := newLab(t, Config{QPS: 1 << 20, Burst: 1 << 20})
	v := l.session(t, "s", "a.example.com")
	for qtype := range uint16(1) << 15 {
		if qtype > 300 && qtype%97 != 0 {
			continue
		}
		m := ask(t, v, "a.example.com", qtype)
		seen := l.up.queries()
		switch qtype {
		case dns.TypeA, dns.TypeAAAA:
			if len(seen) != 1 || len(m.Answer) != 1 {
				t.Errorf("%s: %v", dns.Type(qtype), m)
			}
			continue
		case dns.TypeANY:
			want(t, m, dns.RcodeNotImplemented)
		case dns.TypeTXT, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeCNAME, dns.TypeDNAME, dns.TypePTR, dns.TypeSRV, dns.TypeHTTPS, dns.TypeSVCB,
			dns.TypeCAA, dns.TypeDS, dns.TypeDNSKEY, dns.TypeTLSA, dns.TypeSSHFP, dns.TypeNAPTR, dns.TypeURI, dns.TypeHINFO:
			want(t, m, dns.RcodeSuccess)
			if !slices.Equal(edes(m), []int{17}) {
				t.Errorf("%s: EDE %v", dns.Type(qtype), edes(m))
			}
		case dns.TypeNULL, dns.TypeAXFR, dns.TypeIXFR, dns.TypeMAILA, dns.TypeMAILB, dns.TypeTSIG, dns.TypeTKEY, dns.TypeOPT, 0, 100, 128:
			want(t, m, dns.RcodeRefused)
		default:
			if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeRefused || len(m.Answer) > 0 {
				t.Errorf("%s: %v", dns.Type(qtype), m)
			}
		}
		if len(seen) > 0 {
			t.Errorf("%s left", dns.Type(qtype))
		}
	}
	for _, qtype := range []uint16{65280, 65399, 65534, 65535, 32770} {
		want(t, ask(t, v, "a.example.com", qtype), dns.RcodeRefused)
		// A name that is not allowed says so first, whatever is asked about it.
		want(t, ask(t, v, "evil.example", qtype), dns.RcodeNameError)
	}
	if n := len(l.up.queries()); n > 0 {
		t.Errorf("%d queries left", n)
	}
}

func TestAnswerLocalNames(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "a.example.com", "*.in-addr.arpa", "*.corp.local")
	want(t, ask(t, v, "LOCALHOST", dns.TypeA), dns.RcodeSuccess, "127.0.0.1")
	want(t, ask(t, v, "x.y.localhost", dns.TypeAAAA), dns.RcodeSuccess, "::1")
	want(t, ask(t, v, "localhost", dns.TypeHTTPS), dns.RcodeSuccess)
	for _, name := range []string{
		".", "printer", "nas.local", "x.corp.local", "abc.onion", "x.internal", "x.test", "x.invalid", "x.alt", "x.lan", "home.arpa",
		"127.0.0.1", "127.1", "0x7f.1", "2130706433", "9.113.0.203.in-addr.arpa", "x.ip6.arpa", "data.9.113.0.203.in-addr.arpa",
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypePTR, dns.TypeTXT} {
			want(t, ask(t, v, name, qtype), dns.RcodeNameError)
		}
	}
	if n := len(l.up.queries()); n != 0 {
		t.Fatalf("%d queries left", n)
	}

	// An address this session was told is known backwards, to it alone.
	want(t, ask(t, v, "a.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	l.up.queries()
	m := ask(t, v, "10.113.0.203.in-addr.arpa", dns.TypePTR)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "a.example.com." {
		t.Errorf("%v", m)
	}
	want(t, ask(t, v, "10.113.0.203.in-addr.arpa", dns.TypeA), dns.RcodeSuccess)
	want(t, ask(t, l.session(t, "other", "a.example.com"), "10.113.0.203.in-addr.arpa", dns.TypePTR), dns.RcodeNameError)
	m = ask(t, v, "1.0.0.127.in-addr.arpa", dns.TypePTR)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "localhost." {
		t.Errorf("%v", m)
	}
	if n := len(l.up.queries()); n != 0 {
		t.Errorf("%d queries left", n)
	}
}

func TestAnswerSRV(t *testing.T) {
	l := newLab(t, Config{Types: []string{"A", "SRV"}})
	v := l.session(t, "s", "*.example.com", "xmpp.example.com 5222", "none.example.net")
	srv := func(records ...string) *dns.Msg {
		l.clock.pass(time.Hour)
		l.up.say(func(q *dns.Msg, _ string) [][]byte { return say(q, records...) })
		return ask(t, v, "_xmpp._tcp.example.com", dns.TypeSRV)
	}
	m := srv("$ 60 IN SRV 1 2 5222 xmpp.example.com.", "$ 60 IN SRV 1 2 443 evil.example.", "$ 60 IN SRV 1 2 25 xmpp.example.com.",
		"other.example. 60 IN SRV 1 2 5222 xmpp.example.com.", `$ 60 IN SRV 1 2 5222 evil\.xmpp.example.com.`)
	if len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "1 2 5222 xmpp.example.com.") {
		t.Errorf("%v", m.Answer)
	}
	m = srv("$ 60 IN SRV 0 0 0 .")
	if len(m.Answer) != 1 || m.Answer[0].(*dns.SRV).Target != "." {
		t.Errorf("%v", m.Answer)
	}
	want(t, srv("$ 60 IN SRV 1 2 443 evil.example."), dns.RcodeNameError)
	want(t, ask(t, v, "a.example.com", dns.TypeAAAA), dns.RcodeSuccess) // not handed out here
}

func TestAnswerDenyRcode(t *testing.T) {
	for name, want := range map[string]int{
		"": dns.RcodeNameError, "NXDOMAIN": dns.RcodeNameError, "REFUSED": dns.RcodeRefused,
		"SERVFAIL": dns.RcodeServerFailure, "NODATA": dns.RcodeSuccess,
	} {
		l := newLab(t, Config{DenyRcode: name})
		v := l.session(t, "s", "a.example.com")
		m := ask(t, v, "b.example.com", dns.TypeA)
		if m.Rcode != want || len(m.Answer) > 0 || !slices.Equal(edes(m), []int{15}) {
			t.Errorf("%s: %v", name, m)
		}
		// A refused answer gets the same code, what is missing its own.
		l.up.say(byType([]string{"10.0.0.1"}, nil))
		if m := ask(t, v, "a.example.com", dns.TypeA); m.Rcode != want || !slices.Equal(edes(m), []int{17}) {
			t.Errorf("%s: %v", name, m)
		}
	}
}

func TestAnswerCNAMEPolicy(t *testing.T) {
	l := newLab(t, Config{})
	set := rules(t, []string{"a.example.com"}, []string{"*.tracker.example", "denied.example 8443"})
	v := l.Session("s", l.rulesOf(set))
	defer v.Close()
	for _, c := range []struct {
		name  string
		hop   string
		rcode int
	}{
		{"a CDN off the list", "cdn.example.net.", dns.RcodeSuccess},
		{"denied", "x.tracker.example.", dns.RcodeNameError},
		{"metadata by name", "metadata.google.internal.", dns.RcodeNameError},
		{"another resolver", "dns.google.", dns.RcodeNameError},
		{"denied on a port that is not looked up for", "denied.example.", dns.RcodeSuccess},
	} {
		l.clock.pass(time.Hour)
		l.up.say(func(q *dns.Msg, _ string) [][]byte {
			return say(q, "$ 60 IN CNAME "+c.hop, c.hop+" 60 IN A 203.0.113.1")
		})
		m := ask(t, v, "a.example.com", dns.TypeA)
		if m.Rcode != c.rcode || (len(m.Answer) > 0) != (c.rcode == dns.RcodeSuccess) {
			t.Errorf("%s: %v", c.name, m)
		}
		if strings.Contains(fmt.Sprint(m.Answer, m.Ns), c.hop) {
			t.Errorf("%s: the hop shows", c.name)
		}
	}
}

// TestAnswerCacheObeysThePolicy changes the rules under a cached answer.
func TestAnswerCacheObeysThePolicy(t *testing.T) {
	l := newLab(t, Config{})
	set := rules(t, []string{"a.example.com"}, nil)
	v := l.Session("s", func() *policy.Set { return set })
	defer v.Close()
	l.up.say(func(q *dns.Msg, _ string) [][]byte {
		return say(q, "$ 60 IN CNAME b.example.net.", "b.example.net. 60 IN A 203.0.113.1")
	})
	want(t, ask(t, v, "a.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.1")
	for _, deny := range []string{"a.example.com", "b.example.net", "203.0.113.0/24"} {
		set = rules(t, []string{"a.example.com"}, []string{deny})
		want(t, ask(t, v, "a.example.com", dns.TypeA), dns.RcodeNameError)
	}
	set = rules(t, []string{"a.example.com"}, nil)
	want(t, ask(t, v, "a.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.1")
	if n := len(l.up.queries()); n != 1 {
		t.Errorf("%d queries", n)
	}
}

func TestAnswerSizes(t *testing.T) {
	l := newLab(t, Config{MaxAnswers: 256})
	v := l.session(t, "s", "a.example.com")
	l.up.say(func(q *dns.Msg, proto string) [][]byte {
		m := reply(q)
		m.Truncated = proto == UDP
		for i := range 200 {
			m.Answer = append(m.Answer, rr(fmt.Sprintf("$ 60 IN A 203.0.113.%d", i), q.Question[0].Name))
		}
		if proto == UDP {
			m.Answer = nil
		}
		return pack(m)
	})
	for _, c := range []struct {
		name  string
		size  int // of EDNS, 0 for none
		proto string
		most  int
		cut   bool
	}{
		{"no EDNS", 0, UDP, 512, true},
		{"tiny", 1, UDP, 512, true},
		{"512", 512, UDP, 512, true},
		{"800", 800, UDP, 800, true},
		{"1232", 1232, UDP, 1232, true},
		{"more than we send", 65535, UDP, 1232, true},
		{"TCP", 0, TCP, dns.MaxMsgSize, false},
	} {
		q := query("a.example.com", dns.TypeA)
		if c.size == 0 {
			q.Extra = nil
		} else {
			q.IsEdns0().SetUDPSize(uint16(c.size))
		}
		m := v.Answer(t.Context(), q, c.proto)
		wire, err := m.Pack()
		if err != nil || len(wire) > c.most || m.Truncated != c.cut || len(m.Answer) == 0 {
			t.Errorf("%s: %d octets, TC %v, %d answers, %v", c.name, len(wire), m.Truncated, len(m.Answer), err)
		}
		if !c.cut && len(m.Answer) != 200 {
			t.Errorf("%s: %d answers", c.name, len(m.Answer))
		}
	}
}

func TestFakeIP(t *testing.T) {
	l := newLab(t, Config{LocalHosts: []string{"git.internal"}})
	set := rules(t, []string{"*.example.com"}, nil)
	v := l.Session("s", l.rulesOf(set), WithFakeIP(true))
	defer v.Close()
	want(t, ask(t, v, "a.example.com", dns.TypeA), dns.RcodeSuccess, "198.18.0.1")
	want(t, ask(t, v, "b.example.com", dns.TypeA), dns.RcodeSuccess, "198.18.0.2")
	want(t, ask(t, v, "A.Example.com", dns.TypeA), dns.RcodeSuccess, "198.18.0.1")
	want(t, ask(t, v, "git.internal", dns.TypeA), dns.RcodeSuccess, "198.18.0.3")
	want(t, ask(t, v, "git.internal", dns.TypeAAAA), dns.RcodeSuccess)
	want(t, ask(t, v, "a.example.com", dns.TypeAAAA), dns.RcodeSuccess)
	want(t, ask(t, v, "evil.example", dns.TypeA), dns.RcodeNameError)
	want(t, ask(t, v, "other.internal", dns.TypeA), dns.RcodeNameError)
	for addr, want := range map[string]string{
		"198.18.0.1": "a.example.com", "198.18.0.2": "b.example.com", "::ffff:198.18.0.3": "git.internal",
		"198.18.0.0": "", "198.18.0.4": "", "198.19.255.255": "", "10.0.0.1": "", "::1": "",
	} {
		if name, ok := v.FakeName(netip.MustParseAddr(addr)); name != want || ok != (want != "") {
			t.Errorf("%s: %q", addr, name)
		}
	}
	m := ask(t, v, "2.0.18.198.in-addr.arpa", dns.TypePTR)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "b.example.com." {
		t.Errorf("%v", m)
	}
	if n := len(l.up.queries()); n != 0 {
		t.Errorf("%d upstream queries", n)
	}
	// The dial behind a fake address resolves for real.
	if got, err := v.Resolve(t.Context(), "a.example.com"); err != nil || !slices.Equal(got, addrs("203.0.113.10", "2001:db8::10")) {
		t.Error(got, err)
	}
	// Without fake addresses a local host does not exist for DNS, and each
	// session counts for itself.
	want(t, ask(t, l.session(t, "t", "*.example.com"), "git.internal", dns.TypeA), dns.RcodeNameError)
	w := l.Session("w", l.rulesOf(set), WithFakeIP(true))
	defer w.Close()
	want(t, ask(t, w, "b.example.com", dns.TypeA), dns.RcodeSuccess, "198.18.0.1")
}

func TestFakesRunOut(t *testing.T) {
	var f fakes
	for i := range fakeCount {
		if _, ok := f.of(fmt.Sprint(i), false); !ok {
			t.Fatalf("name %d has no address", i)
		}
	}
	if place, ok := f.of("one more", false); ok {
		t.Fatal("beyond the range:", fakeAddr(place))
	}
	if place, ok := f.of(fmt.Sprint(fakeCount-1), false); !ok || fakeAddr(place) != netip.MustParseAddr("198.19.255.254") {
		t.Fatal("the last:", fakeAddr(place))
	}
}

// An address may be refused for more than its class, and the record says which it was.
func TestRecordHasTheCodeOfARefusedAddress(t *testing.T) {
	for addr, want := range map[string]policy.Code{
		"10.0.0.1": policy.AddressClass, "169.254.169.254": policy.AlwaysDenied, "203.0.113.66": policy.Denied,
	} {
		l := newLab(t, Config{})
		set := rules(t, []string{"a.example"}, []string{"203.0.113.66"})
		v := l.Session("A", func() *policy.Set { return set })
		defer v.Close()
		l.up.say(func(q *dns.Msg, _ string) [][]byte { return say(q, "$ 60 IN A "+addr) })
		ask(t, v, "a.example", dns.TypeA)
		r := l.records.take()
		if len(r) != 1 || r[0].Reason != ReasonRebind || r[0].Code != want.String() {
			t.Errorf("%s: %+v", addr, r)
		}
	}
}
