package lease

import (
	"testing"
	"time"
)

// The launcher learns how its session ended, even one that reads no events: its
// queue is full when the last event comes.
func TestEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		send []Event
		want string
	}{
		{"closed on request", []Event{{Type: EventSessionClose, Fields: map[string]any{"code": EndRequested, "reason": "closed on request"}}}, EndRequested},
		{"shutting down", []Event{{Type: EventSessionClose, Fields: map[string]any{"code": EndClosing}}}, EndClosing},
		{"an appliance that gives no code", []Event{{Type: EventSessionClose, Fields: map[string]any{"reason": "because"}}}, ""},
		{"a code that is no text", []Event{{Type: EventSessionClose, Fields: map[string]any{"code": 7}}}, ""},
		{"another event with that code", []Event{{Type: EventDenied, Fields: map[string]any{"code": EndRequested}}}, ""},
		{"without a word", nil, ""},
		{"behind a full queue", append(make([]Event, 2*eventQueue), Event{Type: EventSessionClose, Fields: map[string]any{"code": EndRequested}}), EndRequested},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln, path := socket(t)
			served := grant(t, ln, Answer{OK: true})
			l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}}, newPair(t))
			if err != nil {
				t.Fatal(err)
			}
			r := <-served
			if r.err != nil {
				t.Fatal(r.err)
			}
			for _, e := range c.send {
				e.Time, e.Session = time.Now(), "a"
				if err := r.req.Send(e); err != nil {
					t.Fatal(err)
				}
			}
			r.req.Close()
			if got := l.End(); got != c.want {
				t.Errorf("ended with %q, want %q", got, c.want)
			}
			l.Close()
		})
	}
}

// A launcher that ends its lease itself is told nothing, and waits for nothing.
func TestEndByTheLauncher(t *testing.T) {
	ln, path := socket(t)
	served := grant(t, ln, Answer{OK: true})
	l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}}, newPair(t))
	if err != nil {
		t.Fatal(err)
	}
	r := <-served
	defer r.req.Close()
	l.Close()
	if got := l.End(); got != "" {
		t.Errorf("ended with %q", got)
	}
}
