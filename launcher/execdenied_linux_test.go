package main

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
	"postern/launcher/spec"
)

// SPEC 96, 98, decision 12: what a rule refuses is told as denied or push, on the stream
// of the run that it was refused to, and is no violation; and the other way round.
func TestExecDeniedIsNoViolation(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	a.will(nil, func(rw http.ResponseWriter, _ *http.Request) {
		a.send(lease.Event{Time: time.Now(), Type: lease.EventDenied, Session: "s-1", Fields: map[string]any{"target": "evil.example:80", "code": "not_allowed", "reason": "no rule allows it"}})
		a.send(lease.Event{Time: time.Now(), Type: lease.EventPush, Session: "s-1", Fields: map[string]any{"repository": "github.com/a/b", "outcome": "refused"}})
		a.send(lease.Event{Time: time.Now(), Type: lease.EventPolicy, Session: "s-1"}) // of no interest to a host's run
		rw.WriteHeader(http.StatusForbidden)
	})
	// What the kernel denies: PID 1 of a sandbox shows nobody its variables.
	h := w.sh(nil, `curl -sS -o /dev/null -w '%{http_code}\n' http://evil.example/; cat /proc/1/environ; sleep 0.2; exit 0`)
	h.last(t)
	denied, pushed, violated := h.of(spec.Denied), h.of(spec.Push), h.of(spec.Violated)
	if len(denied) != 1 || denied[0].Fields["target"] != "evil.example:80" || denied[0].Fields["reason"] != "no rule allows it" || denied[0].Session != "s-1" {
		t.Errorf("denied %+v", denied)
	}
	if len(pushed) != 1 || pushed[0].Fields["outcome"] != "refused" {
		t.Errorf("push %+v", pushed)
	}
	if len(violated) != 1 || violated[0].Target != "/proc/1/environ" || violated[0].Action == "" {
		t.Errorf("violation %+v\n%s", violated, h.said(spec.Stderr))
	}
	if h.said(spec.Stdout) != "403\n" || len(h.all) == 0 {
		t.Errorf("%q", h.said(spec.Stdout))
	}
	for _, e := range h.all {
		if e.Type == "policy" {
			t.Errorf("%+v", e)
		}
	}
}

// SPEC 83: a protected path that is not there is no reason not to run, and makes no
// ghost of itself.
func TestExecProtectsWhatIsNotThere(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	over := fields{"protectedPaths": []string{filepath.Join(w.home, "elsewhere", "gone"), "/no/such/checkout"}}
	h := w.sh(over, "ls -A; echo ran")
	if h.code != 0 || h.said(spec.Stdout) != "ran\n" {
		t.Errorf("%d %q\n%s", h.code, h.said(spec.Stdout), h.stderr)
	}
}
