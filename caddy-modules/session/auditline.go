package session

import (
	"log/slog"
	"time"

	"postern/caddy-modules/proxy"
)

// ProtoDNS stands in the trail, and in events, for a question to a stub resolver.
const ProtoDNS = "dns"

// maxClientText bounds text of a client in a line, in bytes.
const maxClientText = 256

// line writes an entry out. The target is what was judged, never a header, and there is
// no path in it: those hold secrets. A field without a value is left out.
func (e *entry) line() slog.Record {
	if e.name != nil {
		return e.nameLine()
	}
	rec := e.rec
	line := slog.NewRecord(rec.Time, slog.LevelInfo, string(rec.Kind), 0)
	line.AddAttrs(slog.Uint64("conn", rec.Conn))
	e.who(&line)
	line.AddAttrs(
		slog.String("proto", string(rec.Proto)),
		slog.String("target", rec.Target.String()),
		slog.String("scheme", rec.Target.Scheme().String()),
		slog.Bool("allowed", rec.Allowed()))
	flag(&line, "would_deny", rec.Allowed() && (rec.Decision.WouldDeny() || rec.Hello.Refuses()))
	line.AddAttrs(slog.String("code", code(rec)), slog.String("reason", rec.Reason()))
	text(&line, "rule", rec.Decision.Rule)
	text(&line, "source", rec.Decision.Source)
	flag(&line, "local", rec.Local)
	if rec.AskedFor.IsValid() {
		text(&line, "asked_for", rec.AskedFor.String())
	}
	if all := resolved(rec); len(all) > 0 {
		line.AddAttrs(slog.Any("resolved", all))
	}
	if rec.Addr.IsValid() {
		text(&line, "addr", rec.Addr.String())
	}
	text(&line, "sni", shown(rec.SNI))
	text(&line, "failed", rec.Failed)
	took(&line, "lookup_ms", rec.Lookup)
	took(&line, "connect_ms", rec.Connect)
	if rec.Kind == proxy.KindClose {
		line.AddAttrs(
			slog.Int64("bytes_up", rec.BytesUp),
			slog.Int64("bytes_down", rec.BytesDown),
			slog.Float64("duration_ms", millis(rec.Duration)),
			slog.String("cause", string(rec.Cause)))
	}
	return line
}

// nameLine writes a refused question out. It has no port, and no number: nothing that
// follows belongs to it.
func (e *entry) nameLine() slog.Record {
	rec := e.name
	line := slog.NewRecord(rec.Time, slog.LevelInfo, string(proxy.KindDecision), 0)
	e.who(&line)
	line.AddAttrs(
		slog.String("proto", ProtoDNS),
		slog.String("target", rec.Name),
		slog.String("type", rec.Type),
		slog.Bool("allowed", false),
		slog.String("code", refusalCode(*rec)))
	text(&line, "reason", rec.Detail)
	text(&line, "rule", rec.Rule)
	text(&line, "source", rec.Source)
	if rec.Suppressed > 0 {
		line.AddAttrs(slog.Int("suppressed", rec.Suppressed))
	}
	return line
}

// who names the session, for people too.
func (e *entry) who(line *slog.Record) {
	spec := &e.session.spec
	line.AddAttrs(slog.String("session", spec.ID))
	text(line, "agent", spec.Agent)
	text(line, "workspace", spec.Workspace)
	text(line, "policy", e.policy)
}

// code is that of the verdict; of a ClientHello that was only noted, it is the note.
func code(rec *proxy.Record) string {
	if rec.Hello.Refuses() && !rec.Decision.WouldDeny() {
		return rec.Hello.String()
	}
	return rec.Code()
}

// resolved are the addresses of the name, as far as they are known: a refusal knows the
// one that was refused.
func resolved(rec *proxy.Record) []string {
	all := make([]string, 0, len(rec.Resolved))
	for _, a := range rec.Resolved {
		all = append(all, a.String())
	}
	if len(all) == 0 && rec.Target.Host().Name() != "" {
		if a, _ := rec.Decision.Addr(); a.IsValid() {
			all = append(all, a.String())
		}
	}
	return all
}

func text(line *slog.Record, name, value string) {
	if value != "" {
		line.AddAttrs(slog.String(name, value))
	}
}

func flag(line *slog.Record, name string, value bool) {
	if value {
		line.AddAttrs(slog.Bool(name, value))
	}
}

func took(line *slog.Record, name string, d time.Duration) {
	if d > 0 {
		line.AddAttrs(slog.Float64(name, millis(d)))
	}
}

// millis rounds to microseconds.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// shown makes text of a client fit for a terminal, which not every encoder of a log
// does.
func shown(s string) string {
	b := []byte(s[:min(len(s), maxClientText)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
