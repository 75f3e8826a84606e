package dnsguard

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
)

// A run asks for what it likes, and its refusals have a line elsewhere: they are detail.
// What fails is not.
func TestLevelsOfRecords(t *testing.T) {
	for verdict, want := range map[Verdict]slog.Level{Allow: slog.LevelDebug, Deny: slog.LevelDebug, Error: slog.LevelInfo, Fail: slog.LevelInfo} {
		for _, level := range []slog.Level{slog.LevelWarn, slog.LevelInfo, slog.LevelDebug} {
			var out bytes.Buffer
			c := &Config{Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))}
			report(context.Background(), c, Record{Name: "a.example", Verdict: verdict})
			lines := 0
			if want >= level {
				lines = 1
			}
			if got := strings.Count(out.String(), "level="+want.String()); got != lines || strings.Count(out.String(), "\n") != lines {
				t.Errorf("%s at %s: %q", verdict, level, out.String())
			}
		}
	}
}
