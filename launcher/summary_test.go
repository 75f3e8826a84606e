package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

func denied(target, reason string, count any) lease.Event {
	return lease.Event{Type: lease.EventDenied, Fields: map[string]any{"target": target, "reason": reason, "count": count}}
}

func summary(events []lease.Event, changes ...sandbox.Change) string {
	var r refusals
	for _, e := range events {
		r.add(e)
	}
	var buf bytes.Buffer
	r.print(&buf, changes)
	return buf.String()
}

func TestSummaryText(t *testing.T) {
	for _, tc := range []struct {
		name   string
		events []lease.Event
		want   string
	}{
		{"nothing", nil, ""},
		{"what is no refusal", []lease.Event{{Type: lease.EventSessionOpen}, {Type: lease.EventPolicy}, {Type: lease.EventPush, Fields: map[string]any{"outcome": "accepted"}}}, ""},
		{"one", []lease.Event{denied("a.example:443", "a.example:443 is refused: no rule", 1.0)}, "postern: denied: a.example:443 is refused: no rule\n"},
		{"several of one target", []lease.Event{denied("a:1", "why", 1.0), denied("a:1", "why", 41.0)}, "postern: denied 42 times: a:1: why\n"},
		{"two targets, in their order", []lease.Event{denied("b:1", "y", 1.0), denied("a:1", "x", 1.0)}, "postern: denied: b:1: y\npostern: denied: a:1: x\n"},
		{"a push", []lease.Event{{Type: lease.EventPush, Fields: map[string]any{"outcome": "refused", "repository": "github.com/a/b", "reason": "main is protected"}}}, "postern: push refused: github.com/a/b: main is protected\n"},
		{"a count that is none", []lease.Event{denied("a:1", "why", "many")}, "postern: denied: a:1: why\n"},
		{"no fields", []lease.Event{{Type: lease.EventDenied}}, "postern: denied: \n"},
		{"control bytes", []lease.Event{denied("a\x1b[2J\n:1", "\u0085", 1.0)}, "postern: denied: a?[2J; :1: ?\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := summary(tc.events); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSummaryIsBounded(t *testing.T) {
	var events []lease.Event
	for i := range 5000 {
		events = append(events, denied(fmt.Sprintf("%d.example:443", i), strings.Repeat("x", 5000), 2.0))
	}
	got := summary(events)
	if n := strings.Count(got, "\n"); n != maxShown+1 || len(got) > 8000 {
		t.Errorf("%d lines, %d bytes", n, len(got))
	}
	if want := fmt.Sprintf("postern: and %d refusals of other targets\n", 2*(5000-maxShown)); !strings.HasSuffix(got, want) {
		t.Errorf("ends with %q, want %q", got[len(got)-60:], want)
	}
}

func TestSummaryOfChanges(t *testing.T) {
	got := summary(nil, sandbox.Change{Path: "/w/.git/hooks\n", What: "is new", Cure: "look"})
	if got != "postern: /w/.git/hooks;  is new; look\n" {
		t.Errorf("got %q", got)
	}
}

// A run that makes very many files does not bury the one that matters.
func TestSummaryOfManyChanges(t *testing.T) {
	var changes []sandbox.Change
	for i := range 50_000 {
		changes = append(changes,
			sandbox.Change{Path: fmt.Sprintf("/w/.env%d", i), What: "is new", Cure: "look"},
			sandbox.Change{Path: fmt.Sprintf("/w/%d/.npmrc", i), What: "is new", Cure: "look"})
	}
	changes = append(changes, sandbox.Change{Path: "/w/sub/.git/hooks", What: "is new", Cure: "look"})
	got := summary(nil, changes...)
	if n := strings.Count(got, "\n"); n != 2*maxAlike+2 || !strings.Contains(got, "/w/sub/.git/hooks is new; look\n") {
		t.Errorf("%d lines: %s", n, got)
	}
	if want := fmt.Sprintf("postern: and %d further files like these\n", 100_000-2*maxAlike); !strings.HasSuffix(got, want) {
		t.Errorf("no %q in %s", want, got)
	}
	for i := range changes {
		changes[i].Path = fmt.Sprintf("/w/%d", i)
	}
	if n := strings.Count(summary(nil, changes...), "\n"); n != maxChanges+1 {
		t.Errorf("%d lines of different names", n)
	}
}

// What changed may quote a link's text or a file's name, which the run chose.
func TestChangesPrintNoOrders(t *testing.T) {
	c := sandbox.Change{Path: "/w/.bashrc", What: "was a symbolic link to x\x1b]0;title\x07\nsecond\u202e and was replaced", Cure: "look"}
	const want = "postern: /w/.bashrc was a symbolic link to x?]0;title?; second? and was replaced; look\n"
	if got := summary(nil, c); got != want {
		t.Errorf("at the end: %q", got)
	}
	var now bytes.Buffer
	(&talker{w: &now}).change(c)
	if now.String() != want {
		t.Errorf("at once: %q", now.String())
	}
}

func TestPrintable(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"plain ünïcode", "plain ünïcode"},
		{"a\nb", "a; b"},
		{"\x1b]0;title\x07", "?]0;title?"},
		{"\u009b31m", "?31m"},
		{"gpj.\u202etxt\u2066\u200b\u2028", "gpj.?txt???"},
		{"\xff\xfe", "?"},
		{strings.Repeat("é", 300), strings.Repeat("é", 200) + "…"},
	} {
		if got := printable(tc.text); got != tc.want {
			t.Errorf("printable(%q) = %q, want %q", tc.text, got, tc.want)
		}
	}
}

// TestRefusalsKeepTheirWord: a refusal that lists much ends with its reason all the same.
func TestRefusalsKeepTheirWord(t *testing.T) {
	for _, err := range []error{
		&sandbox.Refusal{Reason: sandbox.ReasonNameGlobs, Detail: strings.Repeat("**/é ", 5000), Cure: "drop them"},
		&sandbox.Refusal{Reason: sandbox.ReasonNameGlobs, Detail: "short"},
		fmt.Errorf("begin: %w", &sandbox.Refusal{Reason: sandbox.ReasonNameGlobs, Detail: strings.Repeat("x", 5000)}),
	} {
		got := refusalLine(err)
		if !strings.HasSuffix(got, " [name_globs]") || len(got) > maxRefusal+50 {
			t.Errorf("%d bytes, ending in %q", len(got), got[max(0, len(got)-30):])
		}
	}
	if got := refusalLine(errors.New("a\x1b")); got != "a?" {
		t.Errorf("got %q", got)
	}
}
