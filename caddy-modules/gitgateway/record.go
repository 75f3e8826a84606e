package gitgateway

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"postern/caddy-modules/egress"
	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
	"postern/gitgw"
)

// pushesTotal belongs to the process, as the other counters do.
var pushesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Namespace: "postern", Subsystem: "git", Name: "pushes_total",
	Help: "Pushes through the git gateway, by their outcome.",
}, []string{"outcome"})

func init() { egress.AddCollectors(pushesTotal) }

// record tells everybody who follows the session of a push. The gateway has
// written the same record to the log. It holds the token's id, never its value.
func record(sessions *session.Registry, log *slog.Logger, p gitgw.Push) {
	pushesTotal.WithLabelValues(string(p.Outcome)).Inc()
	fields, err := pushFields(p)
	if err != nil {
		log.LogAttrs(context.Background(), slog.LevelError, "encode push for the events", slog.Any("error", err))
		return
	}
	sessions.Publish(lease.Event{Time: p.Time, Type: lease.EventPush, Session: p.Session, Fields: fields})
}

// pushFields makes the fields of an event from the record's own JSON, so that the
// two have the same names.
func pushFields(p gitgw.Push) (map[string]any, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	delete(fields, "time")
	delete(fields, "session")
	return fields, nil
}
