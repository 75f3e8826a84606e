package egress_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// metricOf sums the lines of a metric that have the labels.
func metricOf(t *testing.T, body, name string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, name+" ") {
			var v float64
			if _, err := fmt.Sscan(line[len(name)+1:], &v); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}

// The admin endpoint has the metrics, and so has a site with the handler; both tell of
// the same process, over a reload too, and no label tells a host or a session.
func TestMetrics(t *testing.T) {
	r := prepare(t)
	site := fmt.Sprintf(`, "http": {"servers": {"m": {"listen": ["unix/%s"], "automatic_https": {"disable": true}, "routes": [{"handle": [{"handler": "metrics"}]}]}}}`,
		filepath.Join(r.run, "site.sock"))
	if err := r.load(`{}`, site); err != nil {
		t.Fatal(err)
	}
	const name = `postern_egress_decisions_total{code="not_allowed",proto="connect"}`
	_, body := r.ask(t, "admin.sock", http.MethodGet, "/metrics", "")
	before := metricOf(t, body, name)
	proxy := r.open(t, "metered")
	connect(t, proxy, "secret-host.example:443")
	if err := r.load(`{"sni": "log"}`, site); err != nil {
		t.Fatal(err)
	}
	connect(t, proxy, "secret-host.example:443")
	for _, socket := range []string{"admin.sock", "site.sock"} {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			status, body := r.ask(t, socket, http.MethodGet, "/metrics", "")
			if got := metricOf(t, body, name) - before; got != 2 {
				if time.Now().Before(deadline) {
					continue
				}
				t.Errorf("%s: %d, %v decisions", socket, status, got)
			}
			for _, want := range []string{"postern_egress_audit_queue ", "postern_egress_audit_dropped_total 0", "postern_egress_sessions 1", "postern_egress_dial_seconds_count", "postern_dns_upstream_seconds_count"} {
				if !strings.Contains(body, want) {
					t.Errorf("%s has no %s", socket, want)
				}
			}
			for _, leaks := range []string{"secret-host", "metered"} {
				if strings.Contains(body, leaks) {
					t.Errorf("%s tells %s", socket, leaks)
				}
			}
			break
		}
	}
}
