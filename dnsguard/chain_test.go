package dnsguard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	"pgregory.net/rapid"
)

func TestWalk(t *testing.T) {
	long := func(hops int) (records []string) {
		owner := "$"
		for i := range hops {
			next := fmt.Sprintf("h%d.example.net.", i)
			records = append(records, owner+" 60 IN CNAME "+next)
			owner = next
		}
		return append(records, owner+" 60 IN A 203.0.113.1")
	}
	for _, c := range []struct {
		name    string
		records []string
		qtype   uint16
		addrs   []string
		hops    int
		ttl     time.Duration
		stray   bool
		err     error
	}{
		{name: "plain", records: []string{"$ 60 IN A 203.0.113.1"}, addrs: []string{"203.0.113.1"}, ttl: 60 * time.Second},
		{name: "lowest TTL", records: []string{"$ 60 IN A 203.0.113.1", "$ 30 IN A 203.0.113.2"}, addrs: []string{"203.0.113.1", "203.0.113.2"}, ttl: 30 * time.Second},
		{name: "chain in order", records: []string{"$ 10 IN CNAME b.example.", "b.example. 60 IN A 203.0.113.1"}, addrs: []string{"203.0.113.1"}, hops: 1, ttl: 10 * time.Second},
		{name: "chain out of order", records: []string{"b.example. 20 IN A 203.0.113.1", "$ 60 IN CNAME B.Example."}, addrs: []string{"203.0.113.1"}, hops: 1, ttl: 20 * time.Second},
		{name: "eight hops", records: long(8), addrs: []string{"203.0.113.1"}, hops: 8, ttl: time.Minute},
		{name: "nine hops", records: long(9), err: errLong},
		{name: "loop to itself", records: []string{"$ 60 IN CNAME $"}, err: errLoop},
		{name: "loop of two", records: []string{"$ 60 IN CNAME b.example.", "b.example. 60 IN CNAME $"}, err: errLoop},
		{name: "loop behind the name", records: []string{"$ 60 IN CNAME b.example.", "b.example. 60 IN CNAME c.example.", "c.example. 60 IN CNAME b.example."}, err: errLoop},
		{name: "two CNAMEs", records: []string{"$ 60 IN CNAME b.example.", "$ 60 IN CNAME c.example."}, err: errFork},
		{name: "the same CNAME twice", records: []string{"$ 60 IN CNAME b.example.", "$ 50 IN CNAME b.example.", "b.example. 60 IN A 203.0.113.1"}, addrs: []string{"203.0.113.1"}, hops: 1, ttl: 50 * time.Second},
		{name: "hop that is no host", records: []string{`$ 60 IN CNAME a\.b.example.`, `a\.b.example. 60 IN A 203.0.113.1`}, err: errChain},
		{name: "hop to an address", records: []string{"$ 60 IN CNAME 127.0.0.1."}, err: errChain},
		{name: "hop to the root", records: []string{"$ 60 IN CNAME ."}, err: errChain},
		{name: "dangling", records: []string{"$ 60 IN CNAME gone.example."}, hops: 1, ttl: 0},
		{name: "address beside a CNAME", records: []string{"$ 60 IN A 203.0.113.1", "$ 60 IN CNAME b.example.", "b.example. 60 IN A 10.0.0.1"}, addrs: []string{"203.0.113.1"}, ttl: time.Minute, stray: true},
		{name: "another owner", records: []string{"other.example. 60 IN A 203.0.113.1"}, stray: true},
		{name: "owner that differs by an escape", records: []string{`a\.example.com. 60 IN A 203.0.113.1`}},
		{name: "another type", records: []string{"$ 60 IN TXT data", "$ 60 IN AAAA 2001:db8::1"}},
		{name: "another class", records: []string{"$ 60 CH A 203.0.113.1"}},
		{name: "the same address twice", records: []string{"$ 60 IN A 203.0.113.1", "$ 60 IN A 203.0.113.1"}, addrs: []string{"203.0.113.1"}, ttl: time.Minute},
		{name: "TTL with the top bit", records: []string{"$ 4294967295 IN A 203.0.113.1"}, addrs: []string{"203.0.113.1"}},
		{name: "IPv6", qtype: dns.TypeAAAA, records: []string{"$ 60 IN AAAA 2001:db8::1"}, addrs: []string{"2001:db8::1"}, ttl: time.Minute},
		{name: "mapped IPv4", qtype: dns.TypeAAAA, records: []string{"$ 60 IN AAAA ::ffff:127.0.0.1"}, addrs: []string{"::ffff:127.0.0.1"}, ttl: time.Minute},
		{name: "DNAME", records: []string{"com. 60 IN DNAME evil.example.", "$ 60 IN CNAME a.evil.example.", "a.evil.example. 60 IN A 203.0.113.1"}, addrs: []string{"203.0.113.1"}, hops: 1, ttl: time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.qtype == 0 {
				c.qtype = dns.TypeA
			}
			q := query("a.example.com", c.qtype)
			m := reply(q)
			for _, text := range c.records {
				if c.name == "loop to itself" {
					text = "$ 60 IN CNAME a.example.com."
				} else if text == "b.example. 60 IN CNAME $" {
					text = "b.example. 60 IN CNAME a.example.com."
				}
				m.Answer = append(m.Answer, rr(text, "A.example.COM."))
			}
			host, err := parseName("a.example.com.")
			if err != nil {
				t.Fatal(err)
			}
			f := walk(m, host, c.qtype, 8)
			var addrs []string
			for _, addr := range f.addrs {
				addrs = append(addrs, addr.String())
			}
			if !errors.Is(f.err, c.err) || !slices.Equal(addrs, c.addrs) || f.stray != c.stray {
				t.Fatalf("got %+v, error %v", f, f.err)
			}
			if c.err == nil && (len(f.hops) != c.hops || f.ttl != c.ttl) {
				t.Fatalf("%d hops, TTL %v", len(f.hops), f.ttl)
			}
		})
	}
}

func TestWalkNXDOMAINHasNoRecords(t *testing.T) {
	m := reply(query("a.example.com", dns.TypeA), "$ 60 IN A 203.0.113.1")
	m.Rcode = dns.RcodeNameError
	host, _ := parseName("a.example.com.")
	if f := walk(m, host, dns.TypeA, 8); f.found() || f.rcode != dns.RcodeNameError {
		t.Fatalf("%+v", f)
	}
}

func TestWalkGiantAnswer(t *testing.T) {
	m := reply(query("a.example.com", dns.TypeA))
	for i := range 4000 {
		m.Answer = append(m.Answer, &dns.A{
			Hdr: dns.RR_Header{Name: "a.example.com.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
			A:   netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}).AsSlice(),
		})
	}
	host, _ := parseName("a.example.com.")
	if f := walk(m, host, dns.TypeA, 8); len(f.addrs) != maxAddrs {
		t.Fatalf("%d addresses", len(f.addrs))
	}
}

// TestWalkStaysOnTheChain holds, over any heap of records, that an address is
// taken only if CNAMEs lead from the asked name to its owner, and that the order
// of the records does not matter.
func TestWalkStaysOnTheChain(t *testing.T) {
	names := []string{"a.example.com.", "b.example.com.", "c.example.com.", "d.example.com.", "e.example.com."}
	rapid.Check(t, func(rt *rapid.T) {
		m := reply(query(names[0], dns.TypeA))
		edges := map[string][]string{}
		owners := map[string][]string{}
		for i := range rapid.IntRange(0, 10).Draw(rt, "records") {
			owner := rapid.SampledFrom(names).Draw(rt, "owner")
			if rapid.Bool().Draw(rt, "alias") {
				to := rapid.SampledFrom(names).Draw(rt, "target")
				edges[owner] = append(edges[owner], to)
				m.Answer = append(m.Answer, rr(owner+" 60 IN CNAME "+to, ""))
				continue
			}
			addr := fmt.Sprintf("203.0.113.%d", i)
			owners[addr] = append(owners[addr], owner)
			m.Answer = append(m.Answer, rr(owner+" 60 IN A "+addr, ""))
		}
		host, _ := parseName(names[0])
		f := walk(m, host, dns.TypeA, 8)
		reach := map[string]bool{names[0]: true}
		for range names {
			for from, to := range edges {
				if reach[from] {
					for _, name := range to {
						reach[name] = true
					}
				}
			}
		}
		for _, addr := range f.addrs {
			if !slices.ContainsFunc(owners[addr.String()], func(owner string) bool { return reach[owner] }) {
				rt.Fatalf("%s is off the chain of %v", addr, m.Answer)
			}
		}
		m.Answer = rapid.Permutation(m.Answer).Draw(rt, "order")
		again := walk(m, host, dns.TypeA, 8)
		text := func(f *finding) string {
			addrs := slices.Clone(f.addrs)
			slices.SortFunc(addrs, netip.Addr.Compare)
			return fmt.Sprint(addrs, f.hops, f.err, f.stray, f.ttl)
		}
		if text(f) != text(again) {
			rt.Fatalf("order matters:\n%s\n%s", text(f), text(again))
		}
	})
}
