package session

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// What launchers tell of their runs is on the streams of those sessions, under their own
// names, before the session's end; and not sent back to who told it (SPEC 88, 96).
func TestReportsOnTheStream(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	one, _ := stream(t, c, "?session=one")
	two, _ := stream(t, c, "?session=two")
	all, _ := stream(t, c, "")
	leases := map[string]*lease.Lease{}
	for _, id := range []string{"one", "two"} {
		l, err := lend(t, filepath.Join(r.options.RunDir, LeaseSocket), lease.Hello{Spec: lease.Spec{ID: id}}, pair(t))
		if err != nil {
			t.Fatal(err)
		}
		leases[id] = l
	}
	for _, e := range []lease.Event{
		{Type: lease.EventReady, Fields: map[string]any{"backend": "native"}},
		{Type: lease.EventViolation, Session: "two", Fields: map[string]any{"target": "/x", "session": "two", "time": "x"}},
		{Type: lease.EventKilled, Fields: map[string]any{"reason": "oom"}},
		{Type: lease.EventExit, Fields: map[string]any{"exitCode": 137}},
	} {
		if err := leases["one"].Report(e); err != nil {
			t.Fatal(err)
		}
	}
	_ = leases["one"].Close()
	_ = leases["two"].Report(lease.Event{Type: lease.EventExit, Fields: map[string]any{"exitCode": 0}})
	_ = leases["two"].Close()
	for name, tc := range map[string]struct {
		from <-chan lease.Event
		want string
	}{
		"one": {one, "session_open ready violation killed exit session_close"},
		"two": {two, "session_open exit session_close"},
	} {
		var got []string
		for len(got) < len(strings.Fields(tc.want)) {
			select {
			case e := <-tc.from:
				if e.Session != name || e.Time.IsZero() || time.Since(e.Time) > time.Hour {
					t.Errorf("%+v", e)
				}
				got = append(got, e.Type)
			case <-time.After(30 * time.Second):
				t.Fatalf("%s: %v, want %s", name, got, tc.want)
			}
		}
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%s: %s, want %s", name, text, tc.want)
		}
	}
	for e := range all {
		if e.Type == lease.EventExit && e.Session == "two" {
			break
		}
	}
	for e := range leases["one"].Events() {
		if e.Type != lease.EventExit && strings.Contains(fmt.Sprint(lease.Reported()), e.Type) {
			t.Errorf("sent back: %+v", e)
		}
	}
}
