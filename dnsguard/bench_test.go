package dnsguard

import (
	"testing"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// benchView has one answer cached.
func benchView(b *testing.B) *View {
	b.Helper()
	up := newFakeUpstream(b)
	g, err := New(Config{Upstreams: []string{up.addr}, QPS: 1 << 20, Burst: 1 << 20, MaxTTL: 24 * 3600e9})
	if err != nil {
		b.Fatal(err)
	}
	up.say(func(q *dns.Msg, _ string) [][]byte {
		if q.Question[0].Qtype == dns.TypeAAAA {
			return say(q, "$ 86400 IN AAAA 2001:db8::10")
		}
		return say(q, "$ 86400 IN A 203.0.113.10")
	})
	set := rules(b, []string{"*.example.com"}, nil)
	v := g.Session("bench", func() *policy.Set { return set })
	b.Cleanup(func() { v.Close(); g.Close() })
	if _, err := v.Resolve(b.Context(), "a.example.com"); err != nil {
		b.Fatal(err)
	}
	return v
}

// BenchmarkAnswerCached is one message answered from the cache: policy, cache,
// address check, message.
func BenchmarkAnswerCached(b *testing.B) {
	v := benchView(b)
	q := query("a.example.com", dns.TypeA)
	b.ReportAllocs()
	for b.Loop() {
		if m := v.Answer(b.Context(), q, UDP); m == nil || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeRefused {
			b.Fatal(m)
		}
	}
}

// BenchmarkAnswerDenied is one message refused before any lookup.
func BenchmarkAnswerDenied(b *testing.B) {
	v := benchView(b)
	q := query("evil.example", dns.TypeA)
	b.ReportAllocs()
	for b.Loop() {
		if m := v.Answer(b.Context(), q, UDP); m.Rcode != dns.RcodeNameError {
			b.Fatal(m)
		}
	}
}

// BenchmarkResolveCached is what the guard adds to a connection through a proxy.
func BenchmarkResolveCached(b *testing.B) {
	v := benchView(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Resolve(b.Context(), "a.example.com"); err != nil {
			b.Fatal(err)
		}
	}
}
