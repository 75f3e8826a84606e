package lease

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestReadTokenAnswer(t *testing.T) {
	got, err := DecodeReadToken(strings.NewReader(`{"token":"ghs_abc","expires":"2026-01-02T03:04:05Z","later":1}`))
	if err != nil || got.Token != "ghs_abc" || !got.Expires.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%q %v %v", got.Token, got.Expires, err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", slog.Any("token", got))
	if all := fmt.Sprintf("%v %+v %#v %s %q %x", got, got, got, got, got, got) + log.String(); strings.Contains(all, "ghs_") || strings.Contains(all, "6768735f") {
		t.Errorf("it shows: %s", all)
	}
	for _, bad := range []string{
		"", "{}", "[]", "<html>secret", `{"token":7}`, `{"token":"a b"}`, `{"token":"a\nquit=1"}`, `{"token":"a\u0000"}`, `{"token":"ä"}`,
		`{"token":"` + strings.Repeat("x", maxReadToken) + `"}`,
	} {
		if got, err := DecodeReadToken(strings.NewReader(bad)); err == nil || strings.Contains(err.Error(), "secret") || got.Token != "" {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}
