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

// record writes the audit record of a push to the log and tells everybody who
// follows the session. The record holds the token's id and never its value.
func record(sessions *session.Registry, log *slog.Logger, p gitgw.Push) {
	pushesTotal.WithLabelValues(string(p.Outcome)).Inc()
	level := slog.LevelInfo
	if p.Outcome != gitgw.Accepted {
		level = slog.LevelWarn
	}
	log.LogAttrs(context.Background(), level, "push", slog.Any("push", p))
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
