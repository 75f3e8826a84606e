package lease

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// A launcher keeps the terms that came last, even one that reads no events; what cannot
// be read as terms is an end for good.
func TestTerms(t *testing.T) {
	terms := func(policy string) Event {
		return Event{Type: EventTerms, Fields: map[string]any{EventTerms: Terms{Policy: policy, EgressAllowlist: []string{"a.example"}, Limits: Caps{Bytes: 1 << 60}}}}
	}
	for name, c := range map[string]struct {
		send []Event
		want string // the policy
		none bool
		end  string
	}{
		"never changed":       {send: []Event{{Type: EventPolicy}}, none: true},
		"changed":             {send: []Event{terms("one")}, want: "one"},
		"changed twice":       {send: []Event{terms("one"), terms("two"), {Type: EventPolicy}}, want: "two"},
		"behind a full queue": {send: append(make([]Event, 2*eventQueue), terms("one")), want: "one"},
		"unreadable":          {send: []Event{terms("one"), {Type: EventTerms}}, want: "one", end: EndRequested},
		"of another shape":    {send: []Event{{Type: EventTerms, Fields: map[string]any{EventTerms: []int{1}}}}, none: true, end: EndRequested},
	} {
		t.Run(name, func(t *testing.T) {
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
			got := l.Terms()
			switch {
			case (got == nil) != c.none:
				t.Errorf("got %v", got)
			case got != nil && (got.Policy != c.want || got.NetworkEnabled || got.Limits.Bytes != 1<<60 || len(got.EgressAllowlist) != 1):
				t.Errorf("got %+v", got)
			}
			if l.End() != c.end {
				t.Errorf("ended with %q, want %q", l.End(), c.end)
			}
			for e := range l.Events() {
				if e.Type == EventTerms {
					t.Error("terms are among the events")
				}
			}
			l.Close()
		})
	}
}

// What an amended hello says is what the terms say, and the token stays.
func TestAmend(t *testing.T) {
	on := true
	h := Hello{Version: Version, Spec: Spec{ID: "a", Policy: "wide", NetworkEnabled: &on, EgressAllowlist: []string{"b.example"}, Repository: "github.com/acme/app"}, Resume: &Resume{ReadToken: "secret", Born: "b"}}
	before := *h.Resume
	want := Terms{Policy: "narrow", EgressAllowlist: []string{"a.example"}, Limits: Caps{Tunnels: 3}}
	h.Amend(want)
	line, err := encodeLine(h)
	if err != nil {
		t.Fatal(err)
	}
	got, refusal := decodeHello(line)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if terms := TermsOf(got.Spec, *got.Resume.Limits); !reflect.DeepEqual(terms, want) {
		t.Errorf("got %+v", terms)
	}
	if got.Spec.Repository != "github.com/acme/app" || got.Resume.ReadToken != "secret" || got.Resume.Born != "b" || !on || before.Limits != nil {
		t.Errorf("got %+v", got.Spec)
	}
	h.Resume.Limits = &Caps{Requests: -1}
	if err := h.validate(); err == nil || !strings.Contains(err.Error(), "below zero") {
		t.Errorf("a limit below zero: %v", err)
	}
}
