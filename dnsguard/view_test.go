package dnsguard

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"pgregory.net/rapid"
)

// TestSessionsShareNothing asks in one session and looks for it in another.
func TestSessionsShareNothing(t *testing.T) {
	l := newLab(t, Config{WildcardNames: 2, QPS: 10, Burst: 10})
	a, b := l.session(t, "a", "*.example.com"), l.session(t, "b", "*.example.com")
	want(t, ask(t, a, "one.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	want(t, ask(t, a, "two.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	want(t, ask(t, a, "three.example.com", dns.TypeA), dns.RcodeNameError)
	for range 20 {
		ask(t, a, "one.example.com", dns.TypeA)
	}
	want(t, ask(t, a, "one.example.com", dns.TypeA), dns.RcodeRefused)
	if b.Pinned("one.example.com") != nil && len(b.Pinned("one.example.com")) > 0 {
		t.Error("pins of another session")
	}
	l.up.queries()
	want(t, ask(t, b, "three.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	want(t, ask(t, b, "one.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	if n := len(l.up.queries()); n != 2 {
		t.Errorf("%d queries: a cache is shared", n)
	}
}

// TestStoreOutlivesAConfiguration carries a session over a reload.
func TestStoreOutlivesAConfiguration(t *testing.T) {
	up := newFakeUpstream(t)
	store := new(Store)
	guard := func(names int) *Guard {
		g, err := New(Config{Upstreams: []string{up.addr}, Store: store, WildcardNames: names})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := guard(2)
	v := open(t, first, "*.example.com")
	want(t, ask(t, v, "one.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	want(t, ask(t, v, "two.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	up.queries()

	second := guard(2)
	w := open(t, second, "*.example.com")
	v.Close()
	first.Close()
	if got := w.Pinned("one.example.com"); !slices.Equal(got, addrs("203.0.113.10")) {
		t.Errorf("pins after a reload: %v", got)
	}
	want(t, ask(t, w, "one.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
	want(t, ask(t, w, "three.example.com", dns.TypeA), dns.RcodeNameError)
	if n := len(up.queries()); n != 0 {
		t.Errorf("%d queries: the cache is lost", n)
	}
	// The last view takes the state with it: the id may be another run's later.
	w.Close()
	if len(store.sessions) != 0 {
		t.Error("state without a view")
	}
	x := open(t, second, "*.example.com")
	defer x.Close()
	defer second.Close()
	want(t, ask(t, x, "three.example.com", dns.TypeA), dns.RcodeSuccess, "203.0.113.10")
}

// TestBudgetBoundsWhatLeaves plays a session that tells a zone as much as it can,
// through both doors, and counts what the zone hears.
func TestBudgetBoundsWhatLeaves(t *testing.T) {
	l := newLab(t, Config{WildcardNames: 20, WildcardSub: 12, WildcardBytes: 100, QPS: 1 << 20, Burst: 1 << 20})
	rapid.Check(t, func(rt *rapid.T) {
		set := rules(t, []string{"*.example.com", "x.*.example.net", "exact.example.com"}, nil)
		v := l.Session(fmt.Sprint(rapid.Uint64().Draw(rt, "session")), l.rulesOf(set))
		defer v.Close()
		l.up.queries()
		for range rapid.IntRange(1, 40).Draw(rt, "queries") {
			name := rapid.StringMatching(`([a-z0-9]{1,14}(\.[a-z]{1,4})?\.example\.com|x\.[a-z]{1,14}\.example\.net|exact\.example\.com)`).Draw(rt, "name")
			if rapid.Bool().Draw(rt, "proxy") {
				_, _ = v.Resolve(t.Context(), name)
			} else {
				ask(t, v, name, rapid.SampledFrom([]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT}).Draw(rt, "type"))
			}
		}
		heard := map[string]bool{}
		octets := 0
		for _, q := range l.up.queries() {
			name := strings.ToLower(strings.TrimSuffix(q.msg.Question[0].Name, "."))
			if heard[name] || name == "exact.example.com" {
				continue
			}
			heard[name] = true
			sub, _ := strings.CutSuffix(name, ".example.com")
			sub = strings.TrimSuffix(strings.TrimPrefix(sub, "x."), ".example.net")
			octets += len(sub)
		}
		if octets > 100 || len(heard) > 40 {
			rt.Fatalf("%d names and %d octets were told", len(heard), octets)
		}
	})
}

func TestRecords(t *testing.T) {
	var out bytes.Buffer
	l := newLab(t, Config{Log: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	v := l.session(t, "run-1", "*.example.com")
	ask(t, v, "A.example.com", dns.TypeA)
	ask(t, v, "a.example.com", dns.TypeA)
	ask(t, v, "evil.example", dns.TypeTXT)
	ask(t, v, `e\"vil\010{}.example.com`, dns.TypeA)
	all := l.records.take()
	if len(all) != 4 {
		t.Fatalf("%d records", len(all))
	}
	first := all[0]
	if first.Session != "run-1" || first.Proto != UDP || first.Name != "a.example.com" || first.Type != "A" || first.Verdict != Allow ||
		first.Rule != "*.example.com" || first.Source != "test.list:1" || first.Rcode != "NOERROR" ||
		!slices.Equal(first.Answers, addrs("203.0.113.10")) || first.Upstream != l.up.addr || first.Cached || first.Time.IsZero() {
		t.Errorf("%+v", first)
	}
	if !all[1].Cached {
		t.Errorf("%+v", all[1])
	}
	if r := all[2]; r.Verdict != Deny || r.Reason != "not_allowed" || r.Rcode != "NXDOMAIN" || r.Type != "TXT" || !strings.Contains(r.Detail, "evil.example") {
		t.Errorf("%+v", r)
	}
	if r := all[3]; r.Verdict != Error || r.Reason != reasonName || strings.ContainsAny(r.Name, "\n") {
		t.Errorf("%+v", r)
	}
	text := out.String()
	if strings.Count(text, "\n") != 4 || !strings.Contains(text, `"level":"INFO"`) || !strings.Contains(text, `"level":"DEBUG"`) ||
		!strings.Contains(text, `"rule":"*.example.com"`) {
		t.Errorf("log:\n%s", text)
	}
}

// TestViewUnderLoad mixes everything at once, for the race detector.
func TestViewUnderLoad(t *testing.T) {
	l := newLab(t, Config{QPS: 1 << 20, Burst: 1 << 20})
	set := rules(t, []string{"*.example.com"}, nil)
	var all sync.WaitGroup
	for s := range 4 {
		v := l.Session(fmt.Sprint(s%2), l.rulesOf(set), WithFakeIP(s == 3))
		all.Go(func() {
			defer v.Close()
			var some sync.WaitGroup
			for i := range 8 {
				some.Go(func() {
					for n := range 20 {
						name := fmt.Sprintf("n%d.example.com", (i+n)%16)
						switch n % 4 {
						case 0:
							_, _ = v.Resolve(t.Context(), name)
						case 1:
							v.Answer(t.Context(), query("evil.example", dns.TypeA), TCP)
						default:
							v.Answer(t.Context(), query(name, dns.TypeA), UDP)
						}
						if release, ok := v.Hold(name, addrs("203.0.113.10")[0]); ok {
							v.NamesOf(addrs("203.0.113.10")[0])
							release()
						}
						l.clock.pass(time.Millisecond)
					}
				})
			}
			some.Wait()
		})
	}
	all.Wait()
}
