package egress

import (
	"context"
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"

	"postern/caddy-modules/session"
)

// processLog returns the logger of what belongs to no configuration. Caddy
// replaces its default logger with each one, and closes what the old one wrote
// to; so the logger is asked for again at every record.
func processLog() *slog.Logger {
	return session.LiveLog(func() slog.Handler {
		return zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName(moduleID))
	})
}

// detail logs everything at debug level. What a guard says of queries is for whoever
// looks into them: the refusals among them have their lines already.
func detail(log *slog.Logger) *slog.Logger { return slog.New(details{log.Handler()}) }

type details struct{ slog.Handler }

func (h details) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

func (h details) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h details) WithAttrs(attrs []slog.Attr) slog.Handler {
	return details{h.Handler.WithAttrs(attrs)}
}
func (h details) WithGroup(name string) slog.Handler { return details{h.Handler.WithGroup(name)} }
