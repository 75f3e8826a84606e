package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// byType answers A and AAAA with lists of addresses.
func byType(v4, v6 []string) func(q *dns.Msg, proto string) [][]byte {
	return func(q *dns.Msg, _ string) [][]byte {
		list, kind := v4, "A"
		if q.Question[0].Qtype == dns.TypeAAAA {
			list, kind = v6, "AAAA"
		}
		var lines []string
		for _, addr := range list {
			lines = append(lines, "$ 60 IN "+kind+" "+addr)
		}
		return say(q, lines...)
	}
}

func TestResolve(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "a.example.com", "*.wild.example.com", "ssh.example.com 22 2222", "db.example.com 5432", "Localhost private", "dns.google", "intranet")
	for _, c := range []struct {
		name   string
		v4, v6 []string
		want   []netip.Addr
	}{
		{"a.example.com", []string{"203.0.113.1", "203.0.113.2"}, []string{"2001:db8::1"}, addrs("203.0.113.1", "203.0.113.2", "2001:db8::1")},
		{"A.Example.COM.", []string{"203.0.113.1"}, nil, addrs("203.0.113.1")},
		{"a.example.com", nil, []string{"2001:db8::1"}, addrs("2001:db8::1")},
		{"x.y.wild.example.com", []string{"203.0.113.1"}, nil, addrs("203.0.113.1")},
		{"ssh.example.com", []string{"203.0.113.1"}, nil, addrs("203.0.113.1")},
		{"db.example.com", []string{"203.0.113.1"}, nil, addrs("203.0.113.1")},
		{"localhost", []string{"203.0.113.1"}, nil, addrs("127.0.0.1", "::1")},
		{"intranet", []string{"203.0.113.1"}, nil, addrs("203.0.113.1")}, // verbatim in the list
	} {
		l.clock.pass(time.Hour)
		l.up.say(byType(c.v4, c.v6))
		got, err := v.Resolve(t.Context(), c.name)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	for _, c := range []struct{ name, reason string }{
		{"evil.example", "not_allowed"},
		{"c2VjcmV0.evil.example", "not_allowed"},
		{"sub.a.example.com", "not_allowed"},
		{"wild.example.com", "not_allowed"},
		{"metadata.google.internal", reasonSpecial},
		{"printer", "not_allowed"},
		{"local", reasonSpecial},
		{"127.0.0.1", reasonSpecial},
		{"0x7f.1", reasonSpecial},
		{"1.0.0.127.in-addr.arpa", reasonSpecial},
		{"x.localhost", "not_allowed"},
		{"dns.google", reasonResolver},
		{"a.example.com\x00.wild.example.com", reasonName},
		{`a\.b.wild.example.com`, reasonName},
		{"", reasonSpecial},
		{strings.Repeat("q", 60) + "." + strings.Repeat("q", 60) + ".wild.example.com", reasonWildcardSub},
	} {
		l.up.queries()
		l.records.take()
		got, err := v.Resolve(t.Context(), c.name)
		refusal := new(RefusedError)
		if got != nil || !errors.As(err, &refusal) || refusal.Reason != c.reason || refusal.Detail == "" || refusal.Decision.Allowed {
			t.Errorf("%q: %v, %v, want the reason %s", c.name, got, err, c.reason)
		}
		if n := len(l.up.queries()); n != 0 {
			t.Errorf("%q: %d upstream queries", c.name, n)
		}
		if r := l.records.take(); len(r) != 1 || r[0].Reason != c.reason || r[0].Verdict == Allow || r[0].Proto != "proxy" {
			t.Errorf("%q: records %+v", c.name, r)
		}
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q: error text %q", c.name, err)
		}
	}
}

// TestResolveRefusesAddresses puts every kind of forbidden address into an
// answer, alone and beside a public one; View.Resolve refuses both, also where the
// stub server would leave the bad one out.
func TestResolveRefusesAddresses(t *testing.T) {
	l := newLab(t, Config{Private: Drop})
	v := l.session(t, "s", "a.example.com")
	for _, bad := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.5", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.8.8.8", "169.254.169.254", "169.254.1.1",
		"172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.168.1.1", "198.18.0.1", "198.19.255.255", "224.0.0.251",
		"239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.0.2.1",
		"::", "::1", "fc00::1", "fd12:3456::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "64:ff9b:1::a00:5", "100::1",
		"2001:0:53aa:64c:0:0:5601:5601", "::ffff:127.0.0.1", "::ffff:10.0.0.5", "::a00:5", "64:ff9b::a9fe:a9fe", "64:ff9b::a00:5",
		"2002:a9fe:a9fe::1", "2002:7f00:1::", "::ffff:0:a00:5",
	} {
		for _, mixed := range []bool{false, true} {
			l.clock.pass(time.Hour)
			list := []string{bad}
			v4, v6 := list, []string(nil)
			if mixed {
				v4 = []string{"203.0.113.10", bad}
			}
			if strings.Contains(bad, ":") {
				v4, v6 = nil, list
				if mixed {
					v6 = []string{bad, "2001:db8::10"}
				}
			}
			l.up.say(func(q *dns.Msg, _ string) [][]byte {
				m := reply(q)
				for _, text := range v4 {
					if q.Question[0].Qtype == dns.TypeA {
						m.Answer = append(m.Answer, rr("$ 60 IN A "+text, q.Question[0].Name))
					}
				}
				for _, text := range v6 {
					if q.Question[0].Qtype == dns.TypeAAAA {
						m.Answer = append(m.Answer, &dns.AAAA{
							Hdr:  dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: 60},
							AAAA: net.ParseIP(text).To16(),
						})
					}
				}
				return pack(m)
			})
			got, err := v.Resolve(t.Context(), "a.example.com")
			refusal := new(RefusedError)
			if !errors.As(err, &refusal) || refusal.Reason != reasonRebind || got != nil {
				t.Errorf("%s mixed %v: %v, %v", bad, mixed, got, err)
				continue
			}
			if !slices.Contains(refusal.Addrs, netip.MustParseAddr(bad)) || refusal.Decision.Allowed || refusal.Decision.Rule == "" && refusal.Decision.Code == policy.NotAllowed {
				t.Errorf("%s mixed %v: refusal %+v", bad, mixed, refusal)
			}
			if pinned := v.Pinned("a.example.com"); len(pinned) != 0 {
				t.Errorf("%s mixed %v: pinned %v", bad, mixed, pinned)
			}
		}
	}
}

// TestResolveNAT64 lets addresses through that carry a public IPv4 address, as
// dual-stack clouds answer.
func TestResolveNAT64(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "a.example.com")
	l.up.say(byType(nil, []string{"64:ff9b::8c52:7005", "2002:8c52:7005::1"}))
	if got, err := v.Resolve(t.Context(), "a.example.com"); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestResolvePrivate(t *testing.T) {
	l := newLab(t, Config{})
	set := rulesIn(t, []string{"git.corp.example", "any.corp.example", "wiki.corp.example private", "a.example.com"}, nil, map[string][]netip.Prefix{
		"git.corp.example": {netip.MustParsePrefix("10.9.0.0/16")},
		"any.corp.example": {netip.MustParsePrefix("0.0.0.0/0")},
	})
	v := l.Session("s", l.rulesOf(set))
	defer v.Close()
	for _, c := range []struct {
		name, addr string
		ok         bool
	}{
		{"git.corp.example", "10.9.8.7", true},
		{"git.corp.example", "10.10.8.7", false},
		{"git.corp.example", "127.0.0.1", false},
		{"git.corp.example", "169.254.169.254", false},
		{"any.corp.example", "172.16.0.1", true},
		{"any.corp.example", "0.0.0.0", false},
		{"any.corp.example", "224.0.0.1", false},
		{"any.corp.example", "255.255.255.255", false},
		{"any.corp.example", "169.254.1.1", false},
		{"any.corp.example", "169.254.169.254", false},
		{"any.corp.example", "168.63.129.16", false},
		{"wiki.corp.example", "10.10.8.7", true},
		{"wiki.corp.example", "169.254.169.254", false},
		{"wiki.corp.example", "0.0.0.0", false},
		{"a.example.com", "10.9.8.7", false},
	} {
		l.clock.pass(time.Hour)
		l.up.say(byType([]string{c.addr}, nil))
		got, err := v.Resolve(t.Context(), c.name)
		if c.ok != (err == nil && slices.Equal(got, addrs(c.addr))) {
			t.Errorf("%s at %s: %v, %v", c.name, c.addr, got, err)
		}
	}
}

// TestResolveRebinding plays a name that turns private after its first answer.
func TestResolveRebinding(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "a.example.com")
	first := addrs("203.0.113.1")
	resolve := func() ([]netip.Addr, error) { return v.Resolve(t.Context(), "a.example.com") }
	l.up.say(func(q *dns.Msg, _ string) [][]byte {
		if q.Question[0].Qtype == dns.TypeA {
			return say(q, "$ 0 IN A 203.0.113.1")
		}
		return say(q)
	})
	if got, err := resolve(); err != nil || !slices.Equal(got, first) {
		t.Fatal(got, err)
	}
	l.up.say(byType([]string{"127.0.0.1"}, nil))
	// Within the TTL nobody asks; a TTL of zero counts as five seconds.
	l.clock.pass(4 * time.Second)
	l.up.queries()
	if got, err := resolve(); err != nil || !slices.Equal(got, first) || len(l.up.queries()) != 0 {
		t.Fatal(got, err)
	}
	// After it the name is rebound: refused, and the pin stands in until it ends.
	for range 3 {
		l.clock.pass(10 * time.Second)
		got, err := resolve()
		if err != nil || !slices.Equal(got, first) {
			t.Fatal(got, err)
		}
	}
	l.clock.pass(10 * time.Second)
	if got, err := resolve(); !errors.As(err, new(*RefusedError)) {
		t.Fatal(got, err)
	}
	if names := v.NamesOf(netip.MustParseAddr("127.0.0.1")); names != nil {
		t.Fatal("loopback is pinned to", names)
	}
}

// TestResolvePinsObeyThePolicy holds that a pin is no permission.
func TestResolvePinsObeyThePolicy(t *testing.T) {
	l := newLab(t, Config{})
	set := rules(t, []string{"wiki.corp.example private"}, nil)
	v := l.Session("s", func() *policy.Set { return set })
	defer v.Close()
	l.up.say(byType([]string{"10.0.0.5"}, nil))
	if got, err := v.Resolve(t.Context(), "wiki.corp.example"); err != nil || !slices.Equal(got, addrs("10.0.0.5")) {
		t.Fatal(got, err)
	}
	l.up.say(rcode(dns.RcodeServerFailure))
	for _, change := range []*policy.Set{
		rules(t, []string{"wiki.corp.example"}, nil),
		rules(t, []string{"wiki.corp.example private"}, []string{"10.0.0.0/8"}),
		rules(t, nil, nil),
		policy.Closed("the policy is gone"),
		nil,
	} {
		set = change
		for range 2 { // from the cache and after it
			if got, err := v.Resolve(t.Context(), "wiki.corp.example"); err == nil {
				t.Errorf("after a change: %v", got)
			}
			m := ask(t, v, "wiki.corp.example", dns.TypeA)
			if len(m.Answer) > 0 {
				t.Errorf("after a change: %v", m.Answer)
			}
		}
	}
	l.clock.pass(10 * time.Second)
	set = rules(t, []string{"wiki.corp.example private"}, nil)
	if got, err := v.Resolve(t.Context(), "wiki.corp.example"); err != nil || !slices.Equal(got, addrs("10.0.0.5")) {
		t.Fatal(got, err)
	}
}

func TestResolveNoSuchName(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "a.example.com")
	for name, script := range map[string]func(q *dns.Msg, proto string) [][]byte{
		"NXDOMAIN": rcode(dns.RcodeNameError), "NODATA": rcode(dns.RcodeSuccess),
	} {
		l.clock.pass(time.Hour)
		l.up.say(script)
		got, err := v.Resolve(t.Context(), "a.example.com")
		var dnsErr *net.DNSError
		if !errors.As(err, &dnsErr) || !dnsErr.IsNotFound || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestResolveOneFamilyFails uses what the other family gave, soon.
func TestResolveOneFamilyFails(t *testing.T) {
	l := newLab(t, Config{secondFamily: secondFamily})
	v := l.session(t, "s", "a.example.com", "b.example.com")
	l.up.say(func(q *dns.Msg, proto string) [][]byte {
		if q.Question[0].Qtype == dns.TypeAAAA {
			return nil
		}
		return answerAll(q, proto)
	})
	start := time.Now()
	if got, err := v.Resolve(t.Context(), "a.example.com"); err != nil || !slices.Equal(got, addrs("203.0.113.10")) {
		t.Fatal(got, err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("an AAAA without answer costs %v", took)
	}
	l.up.say(func(q *dns.Msg, proto string) [][]byte {
		if q.Question[0].Qtype == dns.TypeA {
			return rcode(dns.RcodeServerFailure)(q, proto)
		}
		return answerAll(q, proto)
	})
	if got, err := v.Resolve(t.Context(), "b.example.com"); err != nil || !slices.Equal(got, addrs("2001:db8::10")) {
		t.Fatal(got, err)
	}
}

// TestResolveCoalesces lets many ask for one name at once.
func TestResolveCoalesces(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "a.example.com")
	release := make(chan struct{})
	l.up.say(func(q *dns.Msg, proto string) [][]byte {
		<-release
		return answerAll(q, proto)
	})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if i%2 == 0 {
				if got, err := v.Resolve(t.Context(), "A.example.com"); err != nil || len(got) != 2 {
					t.Error(got, err)
				}
				return
			}
			m := v.Answer(t.Context(), query("a.EXAMPLE.com", dns.TypeA), UDP)
			if m == nil || len(m.Answer) != 1 {
				t.Error(m)
			}
		})
	}
	// One impatient asker leaves the others alone.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := v.Resolve(ctx, "a.example.com"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("impatient: %v", err)
	}
	close(release)
	all.Wait()
	if n := len(l.up.queries()); n != 2 {
		t.Errorf("%d upstream queries for one name and two types", n)
	}
}

// TestResolveWhileClosing holds that Close waits for nobody outside.
func TestResolveWhileClosing(t *testing.T) {
	l := newLab(t, Config{})
	l.up.say(silence)
	v := l.session(t, "s", "*.example.com")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := v.Resolve(t.Context(), fmt.Sprintf("n%d.example.com", i))
			if !errors.Is(err, ErrClosed) {
				t.Errorf("error %v", err)
			}
		})
		all.Go(func() {
			if m := v.Answer(t.Context(), query(fmt.Sprintf("m%d.example.com", i), dns.TypeA), UDP); m != nil {
				t.Errorf("answer after the end: %v", m)
			}
		})
	}
	for len(l.up.queries()) == 0 {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	v.Close()
	all.Wait()
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("closing took %v", took)
	}
	v.Close() // again does nothing
	if _, err := v.Resolve(t.Context(), "a.example.com"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestGuardResolve(t *testing.T) {
	l := newLab(t, Config{})
	l.up.say(byType([]string{"203.0.113.1", "10.0.0.5"}, nil))
	// The caller vets: the guard must not hide what it would refuse.
	got, err := l.Resolve(t.Context(), "a.example.com")
	if err != nil || !slices.Equal(got, addrs("203.0.113.1", "10.0.0.5")) {
		t.Error(got, err)
	}
	l.up.queries()
	for _, name := range []string{"local", "nas.local", "dns.google", "127.1", "a b.example.com"} {
		if got, err := l.Resolve(t.Context(), name); !errors.As(err, new(*RefusedError)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if n := len(l.up.queries()); n != 0 {
		t.Errorf("%d upstream queries", n)
	}
	l.Close()
	if _, err := l.Resolve(t.Context(), "a.example.com"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
