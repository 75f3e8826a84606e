package egress

import (
	"context"
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"
)

// processLog returns the logger of what belongs to no configuration. Caddy
// replaces its default logger with each one, and closes what the old one wrote
// to; so the logger is asked for again at every record.
func processLog() *slog.Logger { return slog.New(liveHandler{}) }

// liveHandler is a slog handler over whatever caddy.Log returns at the time.
type liveHandler struct {
	with []func(slog.Handler) slog.Handler // attributes and groups, in order
}

func (h liveHandler) target() slog.Handler {
	var t slog.Handler = zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName(moduleID))
	for _, f := range h.with {
		t = f(t)
	}
	return t
}

// Enabled implements [slog.Handler].
func (h liveHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.target().Enabled(ctx, l)
}

// Handle implements [slog.Handler].
func (h liveHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.target().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h liveHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.add(func(t slog.Handler) slog.Handler { return t.WithAttrs(attrs) })
}

// WithGroup implements [slog.Handler].
func (h liveHandler) WithGroup(name string) slog.Handler {
	return h.add(func(t slog.Handler) slog.Handler { return t.WithGroup(name) })
}

func (h liveHandler) add(f func(slog.Handler) slog.Handler) slog.Handler {
	// A copy, since two loggers may be derived from one.
	return liveHandler{append(append([]func(slog.Handler) slog.Handler(nil), h.with...), f)}
}

// Interface guard
var _ slog.Handler = liveHandler{}
