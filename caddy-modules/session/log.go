package session

import (
	"context"
	"log/slog"
	"slices"
)

// LiveLog is a logger over whatever target gives at the time of each record. A
// configuration closes its log when it goes, and what belongs to the process stays.
func LiveLog(target func() slog.Handler) *slog.Logger {
	return slog.New(liveHandler{target: target})
}

type liveHandler struct {
	target func() slog.Handler
	with   []func(slog.Handler) slog.Handler // attributes and groups, in order
}

func (h liveHandler) resolve() slog.Handler {
	t := h.target()
	for _, f := range h.with {
		t = f(t)
	}
	return t
}

// Enabled implements slog.Handler.
func (h liveHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.target().Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h liveHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.resolve().Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h liveHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.and(func(t slog.Handler) slog.Handler { return t.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h liveHandler) WithGroup(name string) slog.Handler {
	return h.and(func(t slog.Handler) slog.Handler { return t.WithGroup(name) })
}

func (h liveHandler) and(f func(slog.Handler) slog.Handler) slog.Handler {
	// A fresh slice: two loggers may be derived from one.
	return liveHandler{h.target, append(slices.Clip(h.with), f)}
}

// handler is the log of the generation that governs, the target of the registry's
// loggers.
func (r *Registry) handler() slog.Handler {
	if g := r.governing.Load(); g != nil && g.Log != nil {
		return g.Log.Handler()
	}
	if r.options.Log != nil {
		return r.options.Log.Handler()
	}
	return slog.DiscardHandler
}
