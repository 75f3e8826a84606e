package dnsguard

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const asked = "registry.example.org"

// good is the honest answer of the exchange tests, evil the one that must not be
// believed.
const (
	good = "$ 60 IN A 203.0.113.10"
	evil = "$ 60 IN A 203.0.113.66"
)

func TestExchangeRejectsForgeries(t *testing.T) {
	wrong := func(change func(m *dns.Msg)) *dns.Msg {
		m := reply(query(asked, dns.TypeA), evil)
		change(m)
		return m
	}
	for _, c := range []struct {
		name    string
		forge   func(m *dns.Msg) // of a reply that is else right
		queries int              // UDP and TCP
	}{
		{"wrong ID", func(m *dns.Msg) { m.Id++ }, 1},
		{"not a response", func(m *dns.Msg) { m.Response = false }, 1},
		{"another opcode", func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, 1},
		{"another name", func(m *dns.Msg) { m.Question[0].Name = "evil.example." }, 1},
		{"a longer name", func(m *dns.Msg) { m.Question[0].Name = "x." + m.Question[0].Name }, 1},
		{"another type", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT }, 1},
		{"another class", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, 1},
		{"no question", func(m *dns.Msg) { m.Question = nil }, 1},
		{"two questions", func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, 1},
		{"another case", func(m *dns.Msg) { m.Question[0].Name = flip(m.Question[0].Name) }, 2},
		{"lower case", func(m *dns.Msg) { m.Question[0].Name = strings.ToLower(m.Question[0].Name) }, 2},
		{"cut", func(m *dns.Msg) { m.Truncated = true }, 2},
		{"a bare refusal", func(m *dns.Msg) { m.Question, m.Answer, m.Rcode = nil, nil, dns.RcodeRefused }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, Config{})
			l.up.say(func(q *dns.Msg, proto string) [][]byte {
				if proto == TCP {
					return say(q, good)
				}
				forged := wrong(func(*dns.Msg) {})
				forged.Id, forged.Question = q.Id, slices.Clone(q.Question)
				c.forge(forged)
				if c.queries == 2 {
					return pack(forged)
				}
				return pack(forged, reply(q, good))
			})
			want(t, ask(t, l.session(t, "s", asked), asked, dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
			seen := l.up.queries()
			if len(seen) != c.queries {
				t.Fatalf("%d upstream queries", len(seen))
			}
			if c.queries == 2 && seen[0].msg.Id == seen[1].msg.Id {
				t.Error("the ID is used again over TCP")
			}
		})
	}
}

func flip(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, name)
}

// TestExchangeIgnoresOtherSources sends forgeries that are right in everything
// but the address or port they come from.
func TestExchangeIgnoresOtherSources(t *testing.T) {
	l := newLab(t, Config{})
	other, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	client := make(chan net.Addr, 1)
	// The source port of the query is what an attacker would have to guess; here
	// it is told, by a dialler that shows the local address.
	up := l.fixed[0].(*plain)
	dial := up.dial
	up.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil && network == "udp" {
			client <- conn.LocalAddr()
		}
		return conn, err
	}
	l.up.say(func(q *dns.Msg, _ string) [][]byte {
		if _, err := other.WriteTo(say(q, evil)[0], <-client); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Millisecond)
		return say(q, good)
	})
	want(t, ask(t, l.session(t, "s", asked), asked, dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
}

// TestExchangeGivesUpUDPUnderAFlood holds that guesses do not get an unbounded
// number of chances.
func TestExchangeGivesUpUDPUnderAFlood(t *testing.T) {
	l := newLab(t, Config{})
	l.up.say(func(q *dns.Msg, proto string) [][]byte {
		if proto == TCP {
			return say(q, good)
		}
		var flood []*dns.Msg
		for i := range 3 * maxJunk {
			m := reply(q, evil)
			m.Id = q.Id + 1 + uint16(i)
			flood = append(flood, m)
		}
		// The lucky guess comes too late.
		return append(append([][]byte{{1}, {}, []byte("not a dns message")}, pack(flood...)...), say(q, evil)...)
	})
	want(t, ask(t, l.session(t, "s", asked), asked, dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	if seen := l.up.queries(); len(seen) != 2 || seen[1].proto != TCP {
		t.Fatalf("%d queries", len(seen))
	}
}

func TestExchangeBuildsItsOwnQuery(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "*.example.org")
	ids, cases := map[uint16]bool{}, map[string]bool{}
	for i := range 20 {
		q := query(strings.ToUpper(asked), dns.TypeA)
		q.Id, q.CheckingDisabled, q.AuthenticatedData, q.Zero = 7, true, true, true
		q.IsEdns0().SetDo()
		q.IsEdns0().Option = []dns.EDNS0{
			&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"},
			&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("secret")},
			&dns.EDNS0_PADDING{Padding: make([]byte, 64)},
			&dns.EDNS0_NSID{Code: dns.EDNS0NSID},
		}
		l.clock.pass(time.Hour) // past the cache
		want(t, v.Answer(t.Context(), q, UDP), dns.RcodeSuccess, "203.0.113.10")
		seen := l.up.queries()
		if len(seen) != 1 {
			t.Fatalf("%d queries", len(seen))
		}
		m := seen[0].msg
		ids[m.Id], cases[m.Question[0].Name] = true, true
		opt := m.IsEdns0()
		if opt == nil || len(opt.Option) > 0 || opt.Do() || opt.UDPSize() != ednsSize || opt.Version() != 0 || len(m.Extra) != 1 {
			t.Fatalf("query %d: OPT %v", i, m.Extra)
		}
		if !m.RecursionDesired || m.CheckingDisabled || m.AuthenticatedData || m.Zero || len(m.Answer)+len(m.Ns) > 0 {
			t.Fatalf("query %d: %v", i, m)
		}
		if !strings.EqualFold(m.Question[0].Name, asked+".") {
			t.Fatalf("query %d asks for %s", i, m.Question[0].Name)
		}
	}
	if len(ids) < 18 || len(cases) < 15 {
		t.Errorf("%d IDs and %d spellings in 20 queries", len(ids), len(cases))
	}
}

func TestExchangeSameCase(t *testing.T) {
	l := newLab(t, Config{SameCase: true})
	l.up.say(func(q *dns.Msg, _ string) [][]byte {
		if q.Question[0].Name != asked+"." {
			t.Errorf("asked for %s", q.Question[0].Name)
		}
		return say(q, good)
	})
	want(t, ask(t, l.session(t, "s", asked), strings.ToUpper(asked), dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
}

func TestExchangeFailsOver(t *testing.T) {
	for _, c := range []struct {
		name  string
		first func(q *dns.Msg, proto string) [][]byte
		asked int // queries to the first
	}{
		{"SERVFAIL", rcode(dns.RcodeServerFailure), 1},
		{"REFUSED", rcode(dns.RcodeRefused), 1},
		{"FORMERR", rcode(dns.RcodeFormatError), 1},
		{"silence", silence, 1}, // for the two seconds of a try
		{"cut over TCP too", func(q *dns.Msg, _ string) [][]byte {
			m := reply(q, evil)
			m.Truncated = true
			return pack(m)
		}, 2},
		{"garbage over TCP", func(q *dns.Msg, proto string) [][]byte {
			if proto == TCP {
				return [][]byte{[]byte("garbage")}
			}
			m := reply(q)
			m.Truncated = true
			return pack(m)
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := newFakeUpstream(t)
			first.say(c.first)
			l := newLab(t, Config{Upstreams: []string{first.addr}})
			v := l.session(t, "s", asked)
			want(t, ask(t, v, asked, dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
			if n := len(first.queries()); n != c.asked {
				t.Errorf("the first upstream was asked %d times", n)
			}
			if n := len(l.up.queries()); n != 1 {
				t.Errorf("the second upstream was asked %d times", n)
			}
			// The one that answered is asked first from now on.
			l.clock.pass(time.Hour)
			want(t, ask(t, v, asked, dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
			if n := len(first.queries()); n != 0 {
				t.Errorf("afterwards the first upstream was asked %d times", n)
			}
		})
	}
}

func rcode(code int) func(q *dns.Msg, proto string) [][]byte {
	return func(q *dns.Msg, _ string) [][]byte {
		m := reply(q)
		m.Rcode = code
		return pack(m)
	}
}

func TestExchangeFailures(t *testing.T) {
	for _, c := range []struct {
		name    string
		script  func(q *dns.Msg, proto string) [][]byte
		queries int
	}{
		{"SERVFAIL", rcode(dns.RcodeServerFailure), 1},
		{"REFUSED", rcode(dns.RcodeRefused), 1},
		{"NOTIMP", rcode(dns.RcodeNotImplemented), 1},
		{"silence", silence, 2},
		{"never the right ID", func(q *dns.Msg, _ string) [][]byte {
			m := reply(q, evil)
			m.Id++
			return pack(m)
		}, 2},
		{"cut for ever", func(q *dns.Msg, _ string) [][]byte {
			m := reply(q)
			m.Truncated = true
			return pack(m)
		}, 4},
		{"compression loop", func(q *dns.Msg, proto string) [][]byte {
			wire := say(q)[0]
			binary.BigEndian.PutUint16(wire[6:], 1) // one answer whose name points to itself
			wire = append(wire, 0xc0, byte(len(wire)), 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 66)
			return [][]byte{wire}
		}, 2},
		{"half a header", func(*dns.Msg, string) [][]byte { return [][]byte{{0, 1, 2}} }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := Config{}
			if c.queries == 2 { // what gets no answer need not be waited for long
				conf.TryTimeout = 100 * time.Millisecond
			}
			l := newLab(t, conf)
			l.up.say(c.script)
			v := l.session(t, "s", asked)
			m := ask(t, v, asked, dns.TypeA)
			want(t, m, dns.RcodeServerFailure)
			if n := len(l.up.queries()); n != c.queries {
				t.Errorf("%d queries", n)
			}
			if r := l.records.take(); len(r) != 1 || r[0].Verdict != Fail || r[0].Reason != reasonUpstream || r[0].Detail == "" {
				t.Errorf("records %+v", r)
			}
			// A failure is kept for a second, not longer.
			want(t, ask(t, v, asked, dns.TypeA), dns.RcodeServerFailure)
			if n := len(l.up.queries()); n != 0 {
				t.Errorf("%d queries within the second", n)
			}
			l.up.say(answerAll)
			l.clock.pass(failureTTL)
			want(t, ask(t, v, asked, dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
		})
	}
}

func TestExchangeNobodyThere(t *testing.T) {
	// A port that was just closed: ICMP says so at once.
	gone := newFakeUpstream(t)
	gone.udp.Close()
	g, err := New(Config{Upstreams: []string{gone.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	start := time.Now()
	_, err = g.Resolve(t.Context(), asked)
	// Silence would take two tries of two seconds.
	var dnsErr *net.DNSError
	if !errors.As(err, &dnsErr) || !errors.Is(err, errUpstream) || dnsErr.IsNotFound {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %v to fail", took)
	}
}

func TestExchangeOverTCPOnly(t *testing.T) {
	up := newFakeUpstream(t)
	g, err := New(Config{Upstreams: []string{"tcp://" + up.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Resolve(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	seen := up.queries()
	if len(seen) != 2 {
		t.Fatalf("%d queries", len(seen))
	}
	for _, q := range seen {
		if q.proto != TCP {
			t.Error("a query went over UDP")
		}
	}
}

// TestExchangeGiantAnswer takes an answer that only TCP can carry, and shows no
// more of it than it may.
func TestExchangeGiantAnswer(t *testing.T) {
	l := newLab(t, Config{})
	l.up.say(func(q *dns.Msg, proto string) [][]byte {
		m := reply(q)
		if proto == UDP {
			m.Truncated = true
			return pack(m)
		}
		for i := range 3000 {
			m.Answer = append(m.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
				A:   net.IPv4(203, 0, 113, byte(i)),
			})
		}
		return pack(m)
	})
	m := ask(t, l.session(t, "s", asked), asked, dns.TypeA)
	if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 16 || m.Truncated {
		t.Fatalf("%s, %d answers", rcodeText(m.Rcode), len(m.Answer))
	}
}
