package lease

import (
	"fmt"
	"strings"
	"testing"
)

// granted is both ends of a lease.
func granted(t *testing.T) (*Lease, *Request) {
	t.Helper()
	ln, path := socket(t)
	served := grant(t, ln, Answer{OK: true})
	l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}}, newPair(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r := <-served
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.req.Close() })
	return l, r.req
}

func TestReport(t *testing.T) {
	l, r := granted(t)
	for i, kind := range Reported() {
		if err := l.Report(Event{Type: kind, Session: "another", Fields: map[string]any{"n": i, "session": "another"}}); err != nil {
			t.Fatal(err)
		}
		e := <-r.Reports()
		if e.Type != kind || e.Session != "" || !e.Time.IsZero() || e.Fields["n"] != float64(i) || len(e.Fields) != 1 {
			t.Errorf("%+v", e)
		}
	}
	for _, kind := range []string{"", "stdout", EventDenied, EventPush, EventSessionClose} {
		if err := l.Report(Event{Type: kind}); err == nil {
			t.Errorf("%q was reported", kind)
		}
	}
	if err := l.Report(Event{Type: EventReady, Fields: map[string]any{"x": strings.Repeat("x", maxReport)}}); err == nil {
		t.Error("a long one was reported")
	}
	select {
	case <-r.Closed():
		t.Error("that ended the lease")
	default:
	}
	_ = l.Close()
	if _, open := <-r.Reports(); open {
		t.Error("more reports than were made")
	}
	if err := l.Report(Event{Type: EventExit}); err == nil {
		t.Error("reported to nobody")
	}
}

// What is no report ends the lease, as anything else said there always did.
func TestNoReport(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":         "x\n",
		"a list":          "[]\n",
		"no type":         "{}\n",
		"not a launchers": `{"type":"denied"}` + "\n",
		"endless":         strings.Repeat("x", maxReport+1),
		"session_close":   `{"type":"session_close","code":"ended"}` + "\n",
		"a bad time":      `{"type":"exit","time":"now"}` + "\n",
		"an empty line":   "\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, r := granted(t)
			if _, err := l.conn.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			r.Wait()
			if e, open := <-r.Reports(); open {
				t.Errorf("%+v", e)
			}
		})
	}
}

// However much a run makes up, what comes of it is bounded, and the end is still heard.
func TestReportsAreBounded(t *testing.T) {
	l, r := granted(t)
	heard := make(chan map[string]int)
	go func() {
		n := map[string]int{}
		for e := range r.Reports() {
			n[e.Type]++
		}
		heard <- n
	}()
	for i := range 3 * maxReports {
		if err := l.Report(Event{Type: EventViolation, Fields: map[string]any{"target": fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if err := l.Report(Event{Type: EventExit}); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Close()
	n := <-heard
	if n[EventViolation] > maxReports || n[EventViolation] == 0 || n[EventExit] == 0 || n[EventExit] > reservedLast {
		t.Errorf("%v", n)
	}
}

// Nobody reads, and nothing waits for that.
func TestReportsThatNobodyReads(t *testing.T) {
	l, r := granted(t)
	for range maxReports {
		if err := l.Report(Event{Type: EventReady}); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Close()
	r.Wait()
}

func FuzzDecodeReport(f *testing.F) {
	f.Add([]byte(`{"type":"exit","exitCode":3,"time":"2026-01-02T03:04:05Z","session":"x"}`))
	f.Add([]byte(`{"type":"violation","action":"open","target":"/a","type":"denied"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := decodeReport(line)
		if err != nil {
			return
		}
		if e.Session != "" || !e.Time.IsZero() || e.Fields["type"] != nil || e.Fields["session"] != nil {
			t.Fatalf("%+v", e)
		}
		if _, err := encodeLine(e); err != nil && len(line) < MaxMessage/8 {
			t.Fatal(err)
		}
	})
}
