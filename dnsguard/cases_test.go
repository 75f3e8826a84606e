package dnsguard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// dnsCase is one line of testdata/dns.jsonl.
type dnsCase struct {
	ID          string
	Allow, Deny []string
	Query       caseQuery
	Upstream    *caseUpstream
	Expect      caseExpect
	Opts        caseOpts
	Why, Source string

	Session  string
	Sessions map[string]struct{ Allow, Deny []string }
	Before   []struct {
		Query    caseQuery
		Upstream *caseUpstream
	}
	BeforeUnique int `json:"before_unique"`
	BeforeBytes  int `json:"before_bytes"`
	BeforeRate   int `json:"before_rate"`
	Repeat       int
	ClockS       int `json:"clock_s"`
}

type caseQuery struct {
	Name, Type, Class, Opcode, Transport string
	ExtraQuestion                        string `json:"extra_question"`
	QR                                   bool
	Raw                                  string
	Answer                               []string
	EDNS                                 json.RawMessage
}

type caseUpstream struct {
	Rcode                         string
	Answer, Authority, Additional []string
	TC                            bool
	QR                            *bool
	ThenTCP                       *caseUpstream `json:"then_tcp"`
	First, Then                   *caseUpstream
	EDNS                          map[string]string
}

type caseExpect struct {
	Rcode           string
	Answers         []string
	UpstreamQueries *int      `json:"upstream_queries"`
	UpstreamEDNS    *[]string `json:"upstream_edns_options"`
	EDNS            *[]string `json:"edns_options"`
	EDE             *int
	NoEDE           *int `json:"no_ede"`
	TTL             *int
	NegTTL          *int `json:"neg_ttl"`
	TC              *bool
	MaxLen          int `json:"max_len"`
	Reason          string
	Log             string
	MaxLogLines     int `json:"max_log_lines"`
	Authority       *[]string
	Additional      *[]string
	Pinned          map[string][]string
	NotPinned       []string `json:"not_pinned"`
	Proxy           *struct {
		Connect         string
		Dials, Never    []string
		Status          int
		UpstreamQueries *int `json:"upstream_queries"`
	}
}

type caseOpts struct {
	DenyRcode    string                    `json:"deny_rcode"`
	Types        []string                  `json:"types"`
	CNAME        string                    `json:"cname"`
	Private      string                    `json:"private"`
	PrivateFor   map[string][]netip.Prefix `json:"private_for"`
	TTLMin       int                       `json:"ttl_min"`
	TTLMax       int                       `json:"ttl_max"`
	NegTTLMax    int                       `json:"neg_ttl_max"`
	UDPMax       int                       `json:"udp_max"`
	MaxAnswers   int                       `json:"max_answers"`
	CNAMEMax     int                       `json:"cname_max"`
	WCUnique     int                       `json:"wc_unique"`
	WCSubMax     int                       `json:"wc_sub_max"`
	WCBytes      int                       `json:"wc_bytes"`
	QPS, Burst   int
	TryTimeoutMS int  `json:"try_timeout_ms"`
	Tries        int  `json:"tries"`
	TotalMS      int  `json:"total_ms"`
	ZeroX20      bool `json:"zero_x20"`
	FakeIP       bool `json:"fake_ip"`
}

func (o caseOpts) config() Config {
	return Config{
		DenyRcode: o.DenyRcode, Types: o.Types, CNAME: o.CNAME, Private: o.Private,
		MinTTL: time.Duration(o.TTLMin) * time.Second, MaxTTL: time.Duration(o.TTLMax) * time.Second,
		NegTTL: time.Duration(o.NegTTLMax) * time.Second, UDPSize: o.UDPMax, MaxAnswers: o.MaxAnswers, MaxCNAME: o.CNAMEMax,
		WildcardNames: o.WCUnique, WildcardSub: o.WCSubMax, WildcardBytes: o.WCBytes, QPS: o.QPS, Burst: o.Burst,
		TryTimeout: time.Duration(o.TryTimeoutMS) * time.Millisecond, Tries: o.Tries,
		TotalTimeout: time.Duration(o.TotalMS) * time.Millisecond, SameCase: !o.ZeroX20, FakeIP: o.FakeIP,
	}
}

// readCases reads a case file strictly: a field that nobody checks would be a
// promise that nobody keeps.
func readCases[C any](t *testing.T, file string, each func(line []byte) C) []C {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []C
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		cases = append(cases, each(lines.Bytes()))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

func TestDNSCases(t *testing.T) {
	var defaults json.RawMessage
	cases := readCases(t, "testdata/dns.jsonl", func(line []byte) dnsCase {
		var c, base dnsCase
		var head struct {
			ID   string
			Opts json.RawMessage
		}
		if err := json.Unmarshal(line, &head); err != nil {
			t.Fatal(err)
		}
		if head.ID == "_defaults" {
			defaults = head.Opts
			return dnsCase{}
		}
		if err := json.Unmarshal(defaults, &base.Opts); err != nil {
			t.Fatal(err)
		}
		c.Opts = base.Opts
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&c); err != nil {
			t.Fatalf("%s: %v", head.ID, err)
		}
		return c
	})
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		if c.ID != "" {
			t.Run(c.ID, func(t *testing.T) { c.run(t) })
		}
	}
}

// TestZeroConfigHasTheCasesDefaults holds the defaults to the case file's.
func TestZeroConfigHasTheCasesDefaults(t *testing.T) {
	for i, line := range readCases(t, "testdata/dns.jsonl", slices.Clone[[]byte]) {
		var c dnsCase
		if i > 0 {
			break
		}
		if err := json.Unmarshal(line, &c); err != nil || c.ID != "_defaults" {
			t.Fatalf("first line: %v %q", err, c.ID)
		}
		var zero Config
		if err := zero.complete(); err != nil {
			t.Fatal(err)
		}
		said := c.Opts.config()
		if err := said.complete(); err != nil {
			t.Fatal(err)
		}
		text := func(c Config) string {
			c.Dial, c.Store, c.Log, c.now = nil, nil, nil, nil
			return fmt.Sprintf("%+v", c)
		}
		if text(zero) != text(said) {
			t.Errorf("zero: %s\ncases: %s", text(zero), text(said))
		}
	}
}

func (c dnsCase) run(t *testing.T) {
	t.Helper()
	l := newLab(t, c.Opts.config())
	sets := map[string]*policy.Set{"A": rulesIn(t, c.Allow, c.Deny, c.Opts.PrivateFor)}
	for name, lists := range c.Sessions {
		sets[name] = rulesIn(t, lists.Allow, lists.Deny, c.Opts.PrivateFor)
	}
	views := make(map[string]*View)
	for name, set := range sets {
		views[name] = l.Session(name, func() *policy.Set { return set })
		t.Cleanup(func() { views[name].Close() })
	}
	v := views["A"]
	switch c.Session {
	case "", "A":
	case "ended":
		v.Close()
	default:
		// Another session has asked before; none of it may show here.
		v.Answer(t.Context(), c.Query.message(t), UDP)
		v = views[c.Session]
	}

	for _, b := range c.Before {
		l.up.say(b.Upstream.script(t))
		v.Answer(t.Context(), b.Query.message(t), UDP)
		l.clock.pass(time.Second)
		l.clock.pass(-time.Second)
	}
	l.up.say(answerAll)
	warm := func(name string) {
		l.clock.pass(time.Second) // let the rate recover
		ask(t, v, name, dns.TypeA)
	}
	for i := range c.BeforeUnique {
		warm(fmt.Sprintf("n%d.example.com", i+1))
	}
	for i, left := 0, c.BeforeBytes; left > 0; i++ {
		sub := fmt.Sprintf("%0*d", min(left, 50), i)
		if left > 50 {
			sub += "." + strings.Repeat("f", min(left, 100)-51)
		}
		left -= len(sub)
		warm(sub + ".example.com")
	}
	if c.BeforeRate > 0 {
		l.up.say(c.Upstream.script(t))
	}
	for range c.BeforeRate {
		ask(t, v, c.Query.Name, dns.TypeA)
	}
	l.clock.pass(time.Duration(c.ClockS) * time.Second)
	if c.Upstream != nil {
		l.up.say(c.Upstream.script(t))
	} else if c.BeforeUnique == 0 {
		l.up.say(silence)
	}
	l.up.queries()
	if c.BeforeRate == 0 { // the flood may have recorded the refusal already
		l.records.take()
	}

	var m *dns.Msg
	for range max(1, c.Repeat) {
		m = c.ask(t, v)
	}
	seen := l.up.queries()
	c.check(t, v, m, seen, l.records.take())
	if p := c.Expect.Proxy; p != nil {
		l.up.queries()
		host, _, _ := strings.Cut(p.Connect, ":")
		addrs, err := v.Resolve(t.Context(), host)
		seen := l.up.queries()
		if p.UpstreamQueries != nil && len(seen) != *p.UpstreamQueries {
			t.Errorf("proxy: %d upstream queries", len(seen))
		}
		if p.Status == 403 && !errors.As(err, new(*RefusedError)) {
			t.Errorf("proxy: got %v, %v, want a refusal", addrs, err)
		}
		for _, addr := range addrs {
			dial := netip.AddrPortFrom(addr, 443).String()
			if addr.Is6() {
				continue // the fake upstream has an AAAA for every name
			}
			if slices.Contains(p.Never, dial) || p.Dials != nil && !slices.Contains(p.Dials, dial) {
				t.Errorf("proxy would dial %s", dial)
			}
		}
		if p.Dials != nil && len(addrs) == 0 {
			t.Errorf("proxy: nothing to dial: %v", err)
		}
	}
}

// ask sends the question through a server on loopback, so that what the cases
// say of messages holds for sockets; a query with TCP in it over TCP.
func (c dnsCase) ask(t *testing.T, v *View) *dns.Msg {
	t.Helper()
	if c.Query.Raw != "" {
		wire, err := hex.DecodeString(c.Query.Raw)
		if err != nil {
			t.Fatal(err)
		}
		return roundTrip(t, v, wire, UDP)
	}
	if c.Repeat > 1 || c.Session == "ended" {
		return v.Answer(t.Context(), c.Query.message(t), UDP)
	}
	wire, err := c.Query.message(t).Pack()
	if err != nil {
		t.Fatal(err)
	}
	proto := UDP
	if c.Query.Transport == "tcp" {
		proto = TCP
	}
	return roundTrip(t, v, wire, proto)
}

func (c dnsCase) check(t *testing.T, v *View, m *dns.Msg, seen []seenQuery, recorded []Record) {
	t.Helper()
	e := c.Expect
	if e.UpstreamQueries != nil && len(seen) != *e.UpstreamQueries {
		t.Errorf("%d upstream queries, want %d", len(seen), *e.UpstreamQueries)
	}
	for _, q := range seen {
		if e.UpstreamEDNS != nil {
			if got := options(q.msg); !slices.Equal(got, *e.UpstreamEDNS) {
				t.Errorf("upstream saw options %q", got)
			}
		}
	}
	if e.Rcode == "DROP" {
		if m != nil {
			t.Errorf("got an answer: %v", m)
		}
		return
	}
	if m == nil {
		t.Fatal("no answer")
	}
	if got := rcodeText(m.Rcode); got != e.Rcode {
		t.Errorf("rcode %s, want %s", got, e.Rcode)
	}
	if e.Answers != nil {
		if got := data(m.Answer); !slices.Equal(got, sorted(e.Answers)) {
			t.Errorf("answers %q, want %q", got, e.Answers)
		}
	}
	if opt := m.IsEdns0(); (opt != nil) != (c.Query.message(t).IsEdns0() != nil) {
		t.Errorf("OPT in the answer: %v", opt != nil)
	}
	if e.EDE != nil && !slices.Contains(edes(m), *e.EDE) {
		t.Errorf("EDE %v, want %d", edes(m), *e.EDE)
	}
	if e.NoEDE != nil && slices.Contains(edes(m), *e.NoEDE) {
		t.Errorf("EDE %v", edes(m))
	}
	if e.EDNS != nil {
		if got := options(m); !slices.Equal(got, *e.EDNS) {
			t.Errorf("options %q, want %q", got, *e.EDNS)
		}
	}
	for _, record := range m.Answer {
		if e.TTL != nil && int(record.Header().Ttl) != *e.TTL {
			t.Errorf("TTL %d, want %d", record.Header().Ttl, *e.TTL)
		}
	}
	if e.NegTTL != nil {
		if len(m.Ns) != 1 || m.Ns[0].Header().Rrtype != dns.TypeSOA || !strings.EqualFold(m.Ns[0].Header().Name, dns.Fqdn(c.Query.Name)) ||
			int(m.Ns[0].Header().Ttl) != *e.NegTTL {
			t.Errorf("authority %v, want a SOA with TTL %d", m.Ns, *e.NegTTL)
		}
	}
	if e.Authority != nil && len(m.Ns) != len(*e.Authority) {
		t.Errorf("authority %v", m.Ns)
	}
	if e.Additional != nil && len(m.Extra) != len(*e.Additional)+1 {
		t.Errorf("additional %v", m.Extra)
	}
	if e.TC != nil && m.Truncated != *e.TC {
		t.Errorf("TC %v", m.Truncated)
	}
	if wire, err := m.Pack(); err != nil || e.MaxLen > 0 && len(wire) > e.MaxLen {
		t.Errorf("%d octets, %v", len(wire), err)
	}
	for name, addrs := range e.Pinned {
		var got []string
		for _, addr := range v.Pinned(name) {
			got = append(got, addr.String())
		}
		if !slices.Equal(got, addrs) {
			t.Errorf("%s is pinned to %q, want %q", name, got, addrs)
		}
	}
	if e.Pinned != nil && len(e.Pinned) == 0 && len(v.Pinned(c.Query.Name)) > 0 {
		t.Errorf("pinned: %v", v.Pinned(c.Query.Name))
	}
	for _, addr := range e.NotPinned {
		if names := v.NamesOf(netip.MustParseAddr(addr)); len(names) > 0 {
			t.Errorf("%s is pinned to %q", addr, names)
		}
	}
	if e.Reason != "" && (!slices.ContainsFunc(recorded, func(r Record) bool { return r.Reason == e.Reason })) {
		t.Errorf("records %+v, want the reason %q", recorded, e.Reason)
	}
	if e.Log == "high-entropy" && !slices.ContainsFunc(recorded, func(r Record) bool { return r.HighEntropy }) {
		t.Errorf("no record of high entropy: %+v", recorded)
	}
	if e.MaxLogLines > 0 && (len(recorded) == 0 || len(recorded) > e.MaxLogLines) {
		t.Errorf("%d records", len(recorded))
	}
}

// roundTrip sends raw bytes to a server of v and returns what comes back, nil
// for nothing.
func roundTrip(t *testing.T, v *View, wire []byte, proto string) *dns.Msg {
	t.Helper()
	conn, stop := dialServer(t, v, proto)
	defer stop()
	framed := &dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize - 1}
	if _, err := framed.Write(wire); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if len(wire) >= 12 && wire[2]&0x80 == 0 {
		// Only what must not be answered is waited for a short time.
		ctx = t.Context()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	}
	defer watch(ctx, conn)()
	m, err := framed.ReadMsg()
	if err != nil {
		return nil
	}
	return m
}
