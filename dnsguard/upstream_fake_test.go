package dnsguard

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// seenQuery is one message that reached the fake upstream.
type seenQuery struct {
	msg   *dns.Msg
	proto string
}

// fakeUpstream is a resolver on loopback, UDP and TCP on one port, that says
// whatever its script says. It answers in raw messages, since a hostile upstream
// is not bound to what a DNS library can write.
type fakeUpstream struct {
	addr string
	udp  *net.UDPConn

	mu     sync.Mutex
	script func(q *dns.Msg, proto string) [][]byte
	seen   []seenQuery
	conns  []net.Conn
	closed bool
	done   sync.WaitGroup
}

// newFakeUpstream starts one that answers every A and AAAA with public addresses.
func newFakeUpstream(tb testing.TB) *fakeUpstream {
	tb.Helper()
	f := &fakeUpstream{script: answerAll}
	// A port that is free for UDP may be taken for TCP; try some.
	var tcp net.Listener
	for range 20 {
		udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			tb.Fatal(err)
		}
		if tcp, err = net.Listen("tcp", udp.LocalAddr().String()); err == nil {
			f.udp, f.addr = udp, udp.LocalAddr().String()
			break
		}
		udp.Close()
	}
	if f.udp == nil {
		tb.Fatal("find a port that is free for UDP and TCP")
	}
	f.done.Go(f.serveUDP)
	f.done.Go(func() { f.serveTCP(tcp) })
	tb.Cleanup(func() {
		f.mu.Lock()
		f.closed = true
		for _, conn := range f.conns {
			conn.Close()
		}
		f.mu.Unlock()
		f.udp.Close()
		tcp.Close()
		f.done.Wait()
	})
	return f
}

// say sets the script for the queries to come.
func (f *fakeUpstream) say(script func(q *dns.Msg, proto string) [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = script
}

// queries returns what has arrived since the last call.
func (f *fakeUpstream) queries() []seenQuery {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen
	f.seen = nil
	return seen
}

func (f *fakeUpstream) replies(wire []byte, proto string) [][]byte {
	q := new(dns.Msg)
	if q.Unpack(wire) != nil {
		return nil
	}
	f.mu.Lock()
	f.seen = append(f.seen, seenQuery{q, proto})
	script := f.script
	f.mu.Unlock()
	return script(q, proto)
}

func (f *fakeUpstream) serveUDP() {
	buf := make([]byte, dns.MaxMsgSize)
	for {
		n, peer, err := f.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		for _, reply := range f.replies(slices.Clone(buf[:n]), UDP) {
			_, _ = f.udp.WriteToUDPAddrPort(reply, peer)
		}
	}
}

func (f *fakeUpstream) serveTCP(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		if f.closed {
			conn.Close()
		}
		f.mu.Unlock()
		f.done.Go(func() { f.serveStream(conn) })
	}
}

func (f *fakeUpstream) serveStream(conn net.Conn) {
	defer conn.Close()
	for {
		var length uint16
		if binary.Read(conn, binary.BigEndian, &length) != nil {
			return
		}
		wire := make([]byte, length)
		if _, err := io.ReadFull(conn, wire); err != nil {
			return
		}
		for _, reply := range f.replies(wire, TCP) {
			framed := binary.BigEndian.AppendUint16(nil, uint16(len(reply)))
			if _, err := conn.Write(append(framed, reply...)); err != nil {
				return
			}
		}
	}
}

// silence is the script of an upstream that never answers.
func silence(*dns.Msg, string) [][]byte { return nil }

// answerAll gives one public address for every name.
func answerAll(q *dns.Msg, _ string) [][]byte {
	if q.Question[0].Qtype == dns.TypeAAAA {
		return say(q, "$ 60 IN AAAA 2001:db8::10")
	}
	return say(q, "$ 60 IN A 203.0.113.10")
}

// say packs a NOERROR reply with the given answer records; $ is the asked name.
func say(q *dns.Msg, records ...string) [][]byte {
	return pack(reply(q, records...))
}

func reply(q *dns.Msg, records ...string) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	for _, text := range records {
		m.Answer = append(m.Answer, rr(text, q.Question[0].Name))
	}
	return m
}

func rr(text, asked string) dns.RR {
	if text[0] == '$' {
		text = asked + text[1:]
	}
	record, err := dns.NewRR(text)
	if err != nil || record == nil {
		panic("parse record " + text)
	}
	return record
}

func pack(msgs ...*dns.Msg) [][]byte {
	var out [][]byte
	for _, m := range msgs {
		m.Compress = true
		wire, err := m.Pack()
		if err != nil {
			panic(err)
		}
		out = append(out, wire)
	}
	return out
}

// patience is what tests wait for something that must come, on a machine that
// may have much else to do.
const patience = 20 * time.Second

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// records collects what a guard records.
type records struct {
	mu  sync.Mutex
	all []Record
}

func (r *records) add(one Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

func (r *records) take() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// rules compiles lists of patterns. One that the parser refuses is left out, as
// a configuration that has it would be refused whole.
func rules(tb testing.TB, allow, deny []string) *policy.Set {
	tb.Helper()
	return rulesIn(tb, allow, deny, nil)
}

// rulesIn is rules where names may lie in private ranges.
func rulesIn(tb testing.TB, allow, deny []string, private map[string][]netip.Prefix) *policy.Set {
	tb.Helper()
	ranges := policy.Ranges{Public: testNets, PrivateFor: map[policy.Host][]netip.Prefix{}}
	for name, prefixes := range private {
		host, err := policy.ParseHost(name)
		if err != nil {
			tb.Fatal(err)
		}
		ranges.PrivateFor[host] = prefixes
	}
	parse := func(lines []string) []policy.Rule {
		var out []policy.Rule
		for i, line := range lines {
			if rule, err := policy.ParseRule(line, policy.Origin{File: "test.list", Line: i + 1}); err == nil {
				out = append(out, rule)
			}
		}
		return out
	}
	set, err := policy.Compile(policy.Lists{Allow: parse(allow), Deny: parse(deny), Ranges: ranges}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// lab is a guard with a fake upstream behind it.
type lab struct {
	*Guard
	up      *fakeUpstream
	clock   *clock
	records *records
}

func newLab(tb testing.TB, conf Config) *lab {
	tb.Helper()
	l := &lab{up: newFakeUpstream(tb), clock: newClock(), records: new(records)}
	conf.Upstreams = append(conf.Upstreams, l.up.addr)
	conf.Record = l.records.add
	conf.now = l.clock.now
	if conf.secondFamily == 0 {
		conf.secondFamily = patience
	}
	guard, err := New(conf)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { guard.Close() })
	l.Guard = guard
	return l
}

// session opens a view with an allowlist.
func (l *lab) session(tb testing.TB, id string, allow ...string) *View {
	tb.Helper()
	set := rules(tb, allow, nil)
	v := l.Session(id, func() *policy.Set { return set })
	tb.Cleanup(func() { v.Close() })
	return v
}

// ask puts one question to a view.
func ask(tb testing.TB, v *View, name string, qtype uint16) *dns.Msg {
	tb.Helper()
	m := v.Answer(tb.Context(), query(name, qtype), UDP)
	if m == nil {
		tb.Fatalf("%s %s: no answer", name, dns.Type(qtype))
	}
	return m
}

func query(name string, qtype uint16) *dns.Msg {
	q := new(dns.Msg)
	q.Id = dns.Id()
	q.RecursionDesired = true
	q.Question = []dns.Question{{Name: dns.Fqdn(name), Qtype: qtype, Qclass: dns.ClassINET}}
	q.SetEdns0(1232, false)
	return q
}

// want checks the rcode and the data of an answer: addresses in order.
func want(tb testing.TB, m *dns.Msg, rcode int, data ...string) {
	tb.Helper()
	var got []string
	for _, record := range m.Answer {
		switch record := record.(type) {
		case *dns.A:
			got = append(got, record.A.String())
		case *dns.AAAA:
			got = append(got, record.AAAA.String())
		default:
			got = append(got, record.String())
		}
	}
	if m.Rcode != rcode || !slices.Equal(got, data) {
		tb.Fatalf("%s: got %s %q, want %s %q", m.Question[0].Name, rcodeText(m.Rcode), got, rcodeText(rcode), data)
	}
}

// rulesOf is the policy function of fixed rules.
func (l *lab) rulesOf(set *policy.Set) func() *policy.Set { return func() *policy.Set { return set } }
