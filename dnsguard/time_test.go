package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// pipeUpstream is an upstream inside a synctest bubble: connections are pipes, so
// time passes only when everybody waits.
type pipeUpstream struct {
	script func(address string, q *dns.Msg) *dns.Msg // nil: silence
	asked  atomic.Int32
	wait   sync.WaitGroup
}

func (p *pipeUpstream) dial(_ context.Context, network, address string) (net.Conn, error) {
	client, server := net.Pipe()
	p.wait.Go(func() {
		defer server.Close()
		buf := make([]byte, dns.MaxMsgSize)
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if network == "tcp" {
			panic("these tests are about UDP")
		}
		q := new(dns.Msg)
		if err := q.Unpack(buf[:n]); err != nil {
			panic(err)
		}
		p.asked.Add(1)
		if m := p.script(address, q); m != nil {
			_, _ = server.Write(pack(m)[0])
		}
		// Until the client is gone.
		_, _ = server.Read(buf)
	})
	return client, nil
}

func bubble(t *testing.T, conf Config, test func(t *testing.T, up *pipeUpstream, g *Guard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		up := &pipeUpstream{script: func(_ string, q *dns.Msg) *dns.Msg { return reply(q, good) }}
		conf.Dial = up.dial
		conf.secondFamily = patience
		if conf.Upstreams == nil {
			conf.Upstreams = []string{"192.0.2.53"}
		}
		g, err := New(conf)
		if err != nil {
			t.Fatal(err)
		}
		test(t, up, g)
		g.Close()
		up.wait.Wait()
	})
}

func open(t *testing.T, g *Guard, allow ...string) *View {
	t.Helper()
	set := rules(t, allow, nil)
	return g.Session("s", func() *policy.Set { return set })
}

func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		name  string
		conf  Config
		want  time.Duration
		asked int32
	}{
		{"two tries of two seconds", Config{}, 4 * time.Second, 2},
		{"three upstreams share the total", Config{Upstreams: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}}, 4500 * time.Millisecond, 3},
		{"as configured", Config{Tries: 3, TryTimeout: time.Second}, 3 * time.Second, 3},
		{"the total is shorter", Config{TotalTimeout: time.Second}, time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.conf, func(t *testing.T, up *pipeUpstream, g *Guard) {
				t.Helper()
				up.script = func(string, *dns.Msg) *dns.Msg { return nil }
				v := open(t, g, asked)
				start := time.Now()
				want(t, ask(t, v, asked, dns.TypeA), dns.RcodeServerFailure)
				if took := time.Since(start); took != c.want || up.asked.Load() != c.asked {
					t.Errorf("failed after %v and %d queries", took, up.asked.Load())
				}
				time.Sleep(failureTTL)
				start = time.Now()
				_, err := v.Resolve(t.Context(), asked)
				var late net.Error
				if took := time.Since(start); !errors.As(err, &late) || !late.Timeout() || took != c.want {
					t.Errorf("a proxy waited %v: %v", took, err)
				}
				v.Close()
			})
		})
	}
}

func TestSecondUpstreamAfterADeadOne(t *testing.T) {
	bubble(t, Config{Upstreams: []string{"192.0.2.1", "192.0.2.2"}}, func(t *testing.T, up *pipeUpstream, g *Guard) {
		t.Helper()
		up.script = func(address string, q *dns.Msg) *dns.Msg {
			if address == "192.0.2.1:53" {
				return nil
			}
			return reply(q, good)
		}
		v := open(t, g, "*.example.org")
		defer v.Close()
		for i, want := range []time.Duration{2 * time.Second, 0, 0} {
			start := time.Now()
			m := ask(t, v, fmt.Sprintf("n%d.example.org", i), dns.TypeA)
			if took := time.Since(start); took != want || len(m.Answer) != 1 {
				t.Errorf("lookup %d: %v after %v", i, m.Answer, took)
			}
		}
	})
}

// TestTTLs holds clamping and counting down, second for second.
func TestTTLs(t *testing.T) {
	for _, c := range []struct {
		records []string
		soa     string
		rcode   int
		ttl     uint32
	}{
		{records: []string{"$ 60 IN A 203.0.113.1"}, ttl: 60},
		{records: []string{"$ 0 IN A 203.0.113.1"}, ttl: 5},
		{records: []string{"$ 1 IN A 203.0.113.1"}, ttl: 5},
		{records: []string{"$ 604800 IN A 203.0.113.1"}, ttl: 300},
		{records: []string{"$ 2147483647 IN A 203.0.113.1"}, ttl: 300},
		{records: []string{"$ 4294967295 IN A 203.0.113.1"}, ttl: 5}, // RFC 2181 §8
		{records: []string{"$ 300 IN CNAME b.example.", "b.example. 30 IN A 203.0.113.1"}, ttl: 30},
		{rcode: dns.RcodeNameError, soa: "example.org. 3600 IN SOA n. h. 1 2 3 4 900", ttl: 60},
		{rcode: dns.RcodeNameError, soa: "example.org. 3600 IN SOA n. h. 1 2 3 4 20", ttl: 20},
		{rcode: dns.RcodeNameError, soa: "example.org. 10 IN SOA n. h. 1 2 3 4 900", ttl: 10},
		{rcode: dns.RcodeNameError, soa: "example.org. 0 IN SOA n. h. 1 2 3 4 0", ttl: 5},
		{rcode: dns.RcodeNameError, ttl: 5},
		{rcode: dns.RcodeSuccess, soa: "example.org. 30 IN SOA n. h. 1 2 3 4 900", ttl: 30},
	} {
		bubble(t, Config{}, func(t *testing.T, up *pipeUpstream, g *Guard) {
			t.Helper()
			up.script = func(_ string, q *dns.Msg) *dns.Msg {
				m := reply(q, c.records...)
				m.Rcode = c.rcode
				if c.soa != "" {
					m.Ns = []dns.RR{rr(c.soa, "")}
				}
				return m
			}
			v := open(t, g, asked)
			defer v.Close()
			for passed := uint32(0); passed <= c.ttl; passed++ {
				m := ask(t, v, asked, dns.TypeA)
				left := c.ttl - passed
				if left == 0 {
					left = c.ttl // asked again
				}
				for _, record := range slices.Concat(m.Answer, m.Ns) {
					if record.Header().Ttl != left {
						t.Fatalf("%v %s after %d s: TTL %d, want %d", c.records, c.soa, passed, record.Header().Ttl, left)
					}
				}
				if n := up.asked.Load(); n != map[bool]int32{false: 1, true: 2}[passed == c.ttl] {
					t.Fatalf("%v %s after %d s: %d queries", c.records, c.soa, passed, n)
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// TestTTLRoundsUp: what still holds for a moment is not told to be over.
func TestTTLRoundsUp(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, _ *pipeUpstream, g *Guard) {
		t.Helper()
		v := open(t, g, asked)
		defer v.Close()
		ask(t, v, asked, dns.TypeA)
		time.Sleep(59*time.Second + 999*time.Millisecond)
		if ttl := ask(t, v, asked, dns.TypeA).Answer[0].Header().Ttl; ttl != 1 {
			t.Errorf("TTL %d", ttl)
		}
	})
}

// TestPins holds how long an address stays a name's.
func TestPins(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, up *pipeUpstream, g *Guard) {
		t.Helper()
		v := open(t, g, asked)
		defer v.Close()
		pinned := func(want ...string) {
			t.Helper()
			if got := v.Pinned(asked); !slices.Equal(got, addrs(want...)) {
				t.Fatalf("pinned %v, want %v", got, want)
			}
		}
		pinned()
		ask(t, v, asked, dns.TypeA) // 60 s and 30 s of grace
		pinned("203.0.113.10")
		up.script = func(_ string, q *dns.Msg) *dns.Msg { return reply(q, "$ 60 IN A 203.0.113.11") }
		time.Sleep(61 * time.Second)
		ask(t, v, asked, dns.TypeA)
		pinned("203.0.113.10", "203.0.113.11")
		release, ok := v.Hold(asked, addrs("203.0.113.10")[0])
		if !ok {
			t.Fatal("a pinned address cannot be held")
		}
		time.Sleep(29 * time.Second)
		pinned("203.0.113.10", "203.0.113.11")
		time.Sleep(10 * time.Minute)
		pinned("203.0.113.10") // its connection lives
		if got := v.NamesOf(addrs("::ffff:203.0.113.10")[0]); !slices.Equal(got, []string{asked}) {
			t.Errorf("names %v", got)
		}
		release()
		release() // a second time does nothing
		pinned()
		if _, ok := v.Hold(asked, addrs("203.0.113.10")[0]); ok {
			t.Error("an address is held after its pin ended")
		}
		if _, ok := v.Hold("evil.example", addrs("203.0.113.11")[0]); ok {
			t.Error("an address is held for another name")
		}
	})
}

// TestResolveWaitsForItsTurn slows a burst of new names down to the rate.
func TestResolveWaitsForItsTurn(t *testing.T) {
	bubble(t, Config{QPS: 10, Burst: 4, WildcardNames: 100}, func(t *testing.T, up *pipeUpstream, g *Guard) {
		t.Helper()
		v := open(t, g, "*.example.org")
		defer v.Close()
		up.script = func(_ string, q *dns.Msg) *dns.Msg {
			if q.Question[0].Qtype == dns.TypeA {
				return reply(q, good)
			}
			return reply(q, "$ 60 IN AAAA 2001:db8::1")
		}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 12 { // 24 queries: 4 at once, 20 at ten a second
			all.Go(func() {
				if _, err := v.Resolve(t.Context(), fmt.Sprintf("n%d.example.org", i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took < 1500*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("12 names took %v", took)
		}
		// What is cached waits for nobody.
		start = time.Now()
		for range 100 {
			if _, err := v.Resolve(t.Context(), "n0.example.org"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("cached lookups took %v", took)
		}
		// Whoever does not want to wait need not.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for i := range 20 {
			_, err := v.Resolve(ctx, fmt.Sprintf("m%d.example.org", i))
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
	})
}

// TestRateRecovers: refused above the rate, served again at it.
func TestRateRecovers(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, _ *pipeUpstream, g *Guard) {
		t.Helper()
		v := open(t, g, asked)
		defer v.Close()
		served := func(n int) (ok int) {
			for range n {
				if m := ask(t, v, asked, dns.TypeA); m.Rcode == dns.RcodeSuccess {
					ok++
				} else if m.Rcode != dns.RcodeRefused {
					t.Fatal(rcodeText(m.Rcode))
				}
			}
			return ok
		}
		if n := served(4096); n != 100 {
			t.Errorf("%d of a burst served", n)
		}
		time.Sleep(time.Second)
		if n := served(4096); n != 50 {
			t.Errorf("%d served a second later", n)
		}
	})
}
