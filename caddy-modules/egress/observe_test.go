package egress

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
	"postern/dnsguard"
)

// valueOf is the value of a counter, or the number of what a histogram was told.
func valueOf(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	m := families[0].GetMetric()[0]
	if h := m.GetHistogram(); h != nil {
		return float64(h.GetSampleCount())
	}
	return m.GetCounter().GetValue()
}

func TestObserved(t *testing.T) {
	set, err := policy.Compile(policy.Lists{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	target, err := policy.ParseTarget("b.example:443", policy.SchemeTLS)
	if err != nil {
		t.Fatal(err)
	}
	refused, would := set.Decide(target), set.Reporting().Decide(target)
	metrics := []prometheus.Collector{
		decisionsTotal.WithLabelValues("socks5", "not_allowed"), decisionsTotal.WithLabelValues("socks5", "allowed"),
		wouldDenyTotal.WithLabelValues("not_allowed"), failedTotal.WithLabelValues("connect_timeout"), dialSeconds,
		closesTotal.WithLabelValues("idle"), bytesTotal.WithLabelValues("up"), bytesTotal.WithLabelValues("down"),
		namesTotal.WithLabelValues("deny", "not_allowed"), namesTotal.WithLabelValues("deny", "repeated"), upstreamSeconds,
		askedTotal.WithLabelValues("yes"),
	}
	for name, c := range map[string]struct {
		do   func()
		want []float64
	}{
		"a refusal": {func() { observe(&proxy.Record{Kind: proxy.KindDecision, Proto: proxy.ProtoSOCKS5, Decision: refused}) }, []float64{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		"only reported": {func() {
			observe(&proxy.Record{Kind: proxy.KindDecision, Proto: proxy.ProtoSOCKS5, Decision: would, Connect: 1})
		}, []float64{0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0}},
		"not reached": {func() {
			observe(&proxy.Record{Kind: proxy.KindDecision, Proto: proxy.ProtoSOCKS5, Decision: would, Failed: "connect_timeout"})
		}, []float64{0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
		"a close": {func() {
			observe(&proxy.Record{Kind: proxy.KindClose, Cause: proxy.CauseIdle, BytesUp: 3, BytesDown: 4, Connect: 1})
		}, []float64{0, 0, 0, 0, 0, 1, 3, 4, 0, 0, 0, 0}},
		"a refused name": {func() { observeName(&dnsguard.Record{Verdict: dnsguard.Deny, Reason: "not_allowed", Suppressed: 5}) }, []float64{0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0}},
		"an answered name": {func() {
			observeName(&dnsguard.Record{Verdict: dnsguard.Allow, Upstream: "192.0.2.1", Duration: time.Second})
		}, []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}},
		"a cached name": {func() { observeName(&dnsguard.Record{Verdict: dnsguard.Allow, Upstream: "192.0.2.1", Cached: true}) }, []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		"an answer":     {func() { count(lease.Event{Type: lease.EventAnswered, Fields: map[string]any{"answer": "yes"}}) }, []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
	} {
		var before []float64
		for _, m := range metrics {
			before = append(before, valueOf(t, m))
		}
		c.do()
		for i, m := range metrics {
			if got := valueOf(t, m) - before[i]; got != c.want[i] {
				t.Errorf("%s: metric %d, %v, rose by %v instead of %v", name, i, m, got, c.want[i])
			}
		}
	}
}
