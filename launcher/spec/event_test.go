package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestEventsOnTheWire(t *testing.T) {
	code := 0
	for _, tc := range []struct {
		event Event
		want  string
	}{
		{Event{Type: Starting, Handle: NewHandle("s", "native")}, `"handle":{"sessionId":"s","backend":"native","state":"created","details":{}}`},
		{Event{Type: Stdout, Data: "a<b\nü"}, `"data":"a<b\nü"`},
		{Event{Type: Stderr, Base64: []byte{0xff, 0}}, `"base64":"/wA="`},
		{Event{Type: Exit, ExitCode: &code}, `"exitCode":0`},
		{Event{Type: Killed, Reason: OOM}, `"reason":"oom"`},
		{Event{Type: Violated, Violation: &Violation{Action: "open", Target: "/a", Raw: "sh: /a: Permission denied"}}, `"action":"open","target":"/a","raw":"sh: /a: Permission denied"`},
		{Event{Type: Violated, Violation: &Violation{Action: "open", Target: "/a", Rule: "a", Source: "spec", Comm: "sh"}, Count: 2}, `"action":"open","target":"/a","rule":"a","source":"spec","comm":"sh","count":2`},
	} {
		var out bytes.Buffer
		tc.event.Time = noon
		if err := NewWriter(&out, "s").Write(tc.event); err != nil {
			t.Fatal(err)
		}
		want := `{"type":"` + string(tc.event.Type) + `","time":"2026-01-02T12:00:00Z","session":"s",` + tc.want + "}\n"
		if out.String() != want {
			t.Errorf("got  %swant %s", out.String(), want)
		}
		var back Event
		if err := json.Unmarshal(out.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		tc.event.Session = "s"
		if !reflect.DeepEqual(back, tc.event) {
			t.Errorf("%+v came back as %+v", tc.event, back)
		}
	}
}

// What a rule refused is as flat here as on the control API, and its reason is no Cause.
func TestDeniedIsFlat(t *testing.T) {
	var out bytes.Buffer
	e := Event{Type: Denied, Time: noon, Fields: map[string]any{"target": "evil.example:443", "reason": "no rule", "session": "another", "count": 2.0}}
	if err := NewWriter(&out, "s").Write(e); err != nil {
		t.Fatal(err)
	}
	want := `{"count":2,"reason":"no rule","session":"s","target":"evil.example:443","time":"2026-01-02T12:00:00Z","type":"denied"}` + "\n"
	if out.String() != want {
		t.Errorf("got %swant %s", out.String(), want)
	}
	var back Event
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Reason != "" || back.Violation != nil || back.Fields["reason"] != "no rule" || len(back.Fields) != 3 {
		t.Errorf("%+v", back)
	}
}

// Whatever a command writes, and however it is cut: the pieces are the bytes.
func FuzzBytesSurvive(f *testing.F) {
	f.Add([]byte("plain\n"), 3)
	f.Add([]byte("\xc3\xa9t\xc3\xa9"), 1)
	f.Add([]byte{0, 0xff, 0xfe, '\n', 0x1b, '"', '\\'}, 2)
	f.Add([]byte("\u2028\u2029\ufffd<>&"), 4)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		cut = min(max(cut, 0), len(data))
		var out bytes.Buffer
		w := NewWriter(&out, "s")
		for _, piece := range [][]byte{data[:cut], data[cut:]} {
			e := Event{Type: Stdout}
			e.SetBytes(piece)
			if err := w.Write(e); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Fatalf("%d lines of two events", n)
		}
		var got []byte
		for line := range strings.Lines(out.String()) {
			var e Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Bytes()...)
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%q came back as %q", data, got)
		}
	})
}

type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 1, errors.New("full")
	}
	return len(p), nil
}

// Lines of several goroutines never mix, and nothing follows half a line.
func TestWriter(t *testing.T) {
	w := NewWriter(&failing{left: 100}, "s")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 12 {
				if err := w.Write(Event{Type: Stdout, Data: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for range 5 {
		_ = w.Write(Event{Type: Ready})
	}
	if w.Err() == nil || w.Write(Event{Type: Exit}) == nil {
		t.Error("a writer that failed goes on")
	}
	var none *Writer
	if none.Write(Event{}) != nil || none.Err() != nil {
		t.Error("a nil Writer fails")
	}
}
