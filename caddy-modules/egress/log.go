package egress

import (
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
