package egress

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"postern/caddy-modules/session/lease"
)

// Collectors belong to the process: Caddy makes a registry for every
// configuration, and a counter that began anew with each would lie.
var (
	deniedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "denied_total",
		Help: "Requests refused by policy, by the code of the decision.",
	}, []string{"code"})

	sessionsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "sessions_total",
		Help: "Sessions opened.",
	})

	openSessions = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "postern", Subsystem: "egress", Name: "sessions",
		Help: "Sessions open now.",
	}, func() float64 { n, _ := openNow(); return n })

	openTunnels = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "postern", Subsystem: "egress", Name: "tunnels",
		Help: "Tunnels open now, over all sessions.",
	}, func() float64 { _, n := openNow(); return n })
)

func openNow() (sessions, tunnels float64) {
	registry := current()
	if registry == nil {
		return 0, 0
	}
	for _, s := range registry.Snapshot() {
		sessions++
		tunnels += float64(s.Tunnels)
	}
	return sessions, tunnels
}

// collectors are all of the process, with those that other packages added.
var collectors = []prometheus.Collector{deniedTotal, sessionsTotal, openSessions, openTunnels}

// AddCollectors is for the init functions of packages that count as well.
func AddCollectors(more ...prometheus.Collector) { collectors = append(collectors, more...) }

// registerMetrics adds the collectors to the registry of a configuration. The
// app and the admin routes of one configuration both do; the second finds them
// there, which is no error.
func registerMetrics(r *prometheus.Registry) error {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			if already := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &already) {
				return fmt.Errorf("register metrics: %w", err)
			}
		}
	}
	return nil
}

// count keeps the counters by the events.
func count(e lease.Event) {
	switch e.Type {
	case lease.EventSessionOpen:
		sessionsTotal.Inc()
	case lease.EventAnswered:
		countAnswer(e)
	case lease.EventDenied:
		n, ok := e.Fields["count"].(uint64)
		if !ok {
			n = 1
		}
		deniedTotal.WithLabelValues(e.Text("code")).Add(float64(n))
	}
}
