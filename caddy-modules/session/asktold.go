package session

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"postern/caddy-modules/session/lease"
)

func (s *session) tellAsked(q HostQuestion) {
	s.registry.Publish(lease.Event{Type: lease.EventAsked, Session: s.spec.ID, Fields: map[string]any{
		"id": q.ID, "target": q.Decision.Target().String(), "proto": string(q.Proto), "policy": q.Policy, "reason": q.Decision.Reason(),
		"rule": q.Decision.Rule, "source": q.Decision.Source, "scopes": q.Scopes, "waitsUntil": q.Deadline,
	}})
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "asked", slog.String("id", q.ID), slog.String("target", q.Decision.Target().String()),
		slog.String("proto", string(q.Proto)), slog.String("policy", q.Policy), slog.String("rule", q.Decision.Rule), slog.String("source", q.Decision.Source))
}

// tellAnswered tells how a question ended, and of an answer how far it goes: an
// approver must not believe that a host is open where it is not.
func (s *session) tellAnswered(q HostQuestion, a HostAnswer, got reach, err error) {
	how := "no"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		how = "timeout"
	case errors.Is(err, context.Canceled):
		how = "withdrawn" // by the clients, or with the session
	case err != nil:
		how = "none"
	case a.Allowed:
		how = "yes"
	}
	fields := map[string]any{"id": q.ID, "target": q.Decision.Target().String(), "answer": how, "seconds": time.Since(q.Time).Seconds()}
	attrs := []slog.Attr{slog.String("id", q.ID), slog.String("target", q.Decision.Target().String()), slog.String("answer", how)}
	add := func(name, value string) {
		if value != "" {
			fields[name] = value
			attrs = append(attrs, slog.String(name, value))
		}
	}
	level := slog.LevelInfo
	if err == nil {
		add("scope", string(got.scope))
		add("by", a.By)
		add("reason", a.Reason)
	} else if how == "none" {
		add("reason", err.Error())
	}
	if got.short != nil {
		level = slog.LevelWarn
		add("said", string(a.Scope))
		add("short", got.short.Error())
	}
	s.registry.Publish(lease.Event{Type: lease.EventAnswered, Session: s.spec.ID, Fields: fields})
	s.log.LogAttrs(s.ctx, level, "answered", attrs...)
}
