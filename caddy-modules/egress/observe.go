package egress

import (
	"github.com/prometheus/client_golang/prometheus"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
	"postern/dnsguard"
)

// What is counted of each connection and each name. No label holds a host or a session:
// whoever is in a sandbox makes those up.
var (
	decisionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "decisions_total",
		Help: "Requests judged, by how they came and the code of the decision.",
	}, []string{"proto", "code"})

	wouldDenyTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "would_deny_total",
		Help: "Requests let through and only reported, by the code of the decision.",
	}, []string{"code"})

	failedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "failed_total",
		Help: "Requests allowed whose target was not reached, by the reason.",
	}, []string{"reason"})

	closesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "closes_total",
		Help: "Ends of what was opened, by the cause.",
	}, []string{"cause"})

	bytesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "bytes_total",
		Help: "Content bytes of what has ended, up from clients or down to them.",
	}, []string{"direction"})

	dialSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "postern", Subsystem: "egress", Name: "dial_seconds",
		Help: "Time to connect to a target, without the lookup of its name.", Buckets: latencies,
	})

	askedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "asked_total",
		Help: "Questions about hosts, by what came of them.",
	}, []string{"answer"})

	namesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "dns", Name: "queries_total",
		Help: "Names judged, by the verdict and its reason.",
	}, []string{"verdict", "reason"})

	upstreamSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "postern", Subsystem: "dns", Name: "upstream_seconds",
		Help: "Time to answer for a name that an upstream was asked about.", Buckets: latencies,
	})

	auditQueue = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "postern", Subsystem: "egress", Name: "audit_queue",
		Help: "Lines of the audit trail that wait to be written.",
	}, func() float64 { return float64(auditNow().Waiting) })

	auditDropped = prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "egress", Name: "audit_dropped_total",
		Help: "Lines of the audit trail that were never written, since the log was too slow.",
	}, func() float64 { return float64(auditNow().Dropped) })
)

// latencies are from a resolver beside us to a server that hardly answers, in seconds.
var latencies = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func init() {
	AddCollectors(decisionsTotal, wouldDenyTotal, failedTotal, closesTotal, bytesTotal, dialSeconds, askedTotal,
		namesTotal, upstreamSeconds, auditQueue, auditDropped)
}

func auditNow() session.AuditStats {
	if registry := current(); registry != nil {
		return registry.Audit()
	}
	return session.AuditStats{}
}

// observe counts a decision or a close. Unlike the trail it misses none.
func observe(rec *proxy.Record) {
	if rec.Kind == proxy.KindClose {
		closesTotal.WithLabelValues(string(rec.Cause)).Inc()
		bytesTotal.WithLabelValues("up").Add(float64(rec.BytesUp))
		bytesTotal.WithLabelValues("down").Add(float64(rec.BytesDown))
		return
	}
	code := rec.Code()
	if rec.Decision.WouldDeny() && rec.Allowed() {
		wouldDenyTotal.WithLabelValues(code).Inc()
		code = policy.Allow.String() // a refusal has its own code, and this was none
	}
	decisionsTotal.WithLabelValues(string(rec.Proto), code).Inc()
	if rec.Failed != "" {
		failedTotal.WithLabelValues(rec.Failed).Inc()
	}
	if rec.Connect > 0 {
		dialSeconds.Observe(rec.Connect.Seconds())
	}
}

// observeName counts a judged name.
func observeName(rec *dnsguard.Record) {
	namesTotal.WithLabelValues(string(rec.Verdict), rec.Reason).Inc()
	if rec.Suppressed > 0 {
		// Of refusals that were not told one by one nobody knows the reasons any more.
		namesTotal.WithLabelValues(string(dnsguard.Deny), "repeated").Add(float64(rec.Suppressed))
	}
	if rec.Upstream != "" && !rec.Cached {
		upstreamSeconds.Observe(rec.Duration.Seconds())
	}
}

// countAnswer counts what came of a question.
func countAnswer(e lease.Event) { askedTotal.WithLabelValues(e.Text("answer")).Inc() }
