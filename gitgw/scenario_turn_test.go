package gitgw_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/gitgw"
)

// taking is the forge, before which another push of the run takes the seat of the one that
// asks the forge something.
type taking struct {
	http.RoundTripper
	n     *gitgw.Inspections
	once  sync.Once
	taken chan func() // its leave
}

func (f *taking) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/repos/") {
		f.once.Do(func() { f.taken <- f.n.Hold("s1") })
	}
	return f.RoundTripper.RoundTrip(r)
}

// seatless is a world whose pushes ask the forge about a protected path, and have lost
// their seat when they are answered.
func seatless(t *testing.T, limits func(*gitgw.Limits), more ...option) (*world, *taking) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f := &taking{RoundTripper: transport, n: new(gitgw.Inspections), taken: make(chan func(), 1)}
	w := newWorld(t, append([]option{protecting("ci/**"), func(w *world) {
		w.gateway.Transport, w.gateway.Inspections = f, f.n
		w.gateway.Limits.Progress = 50 * time.Millisecond
		limits(&w.gateway.Limits)
	}}, more...)...)
	return w, f
}

// A push that has given its seat away while it asked the forge waits for another one as
// it did for the first: it says so, and not for ever.
func TestSeatIsWaitedForAgain(t *testing.T) {
	t.Parallel()
	const waits = "remote: Control Center: waiting until other pushes have been looked into"
	t.Run("in vain", func(t *testing.T) {
		t.Parallel()
		w, f := seatless(t, func(l *gitgw.Limits) { l.LookWait = 300 * time.Millisecond })
		r := w.git("push", "origin", "main:x")
		r.want(t, 1, waits, "(Control Center: other pushes are being looked into, and this one had no turn within 300ms)",
			"remote: Control Center: push again when they are through")
		r.lacks(t, "cannot tell", "Everything up-to-date")
		if rec := w.record(); rec.Code != gitgw.CodeLooksBusy || rec.Outcome != gitgw.Refused {
			t.Errorf("record: %+v", rec)
		}
		(<-f.taken)()
		nothingLeft(t, f.n)
		w.git("push", "origin", "main:x").want(t, 0, "[new branch]")
	})
	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		w, f := seatless(t, func(*gitgw.Limits) {})
		go func() {
			leave := <-f.taken
			time.Sleep(300 * time.Millisecond)
			leave()
		}()
		w.git("push", "origin", "main:x").want(t, 0, waits, "[new branch]")
		nothingLeft(t, f.n)
	})
	t.Run("without its client", func(t *testing.T) {
		t.Parallel()
		w, f := seatless(t, func(*gitgw.Limits) {})
		conn := w.half(func(body string) int { return len(body) })
		leave := <-f.taken
		_ = conn.Close()
		if rec := w.waitRecord(); rec.Outcome != gitgw.Aborted || rec.Reason != "the client went away" {
			t.Errorf("record: %+v", rec)
		}
		leave()
		nothingLeft(t, f.n)
	})
	t.Run("without its run", func(t *testing.T) {
		t.Parallel()
		l := &life{}
		w, f := seatless(t, func(*gitgw.Limits) {}, mortal(l))
		conn := w.half(func(body string) int { return len(body) })
		defer func() { _ = conn.Close() }()
		leave := <-f.taken
		l.end(t)
		if rec := w.waitRecord(); rec.Outcome != gitgw.Aborted || rec.Reason != "this run has ended" {
			t.Errorf("record: %+v", rec)
		}
		leave()
		nothingLeft(t, f.n)
	})
	t.Run("for the whole time", func(t *testing.T) {
		t.Parallel()
		w, f := seatless(t, func(l *gitgw.Limits) { l.Total = 500 * time.Millisecond })
		w.git("push", "origin", "main:x").want(t, 1, "(Control Center: the push took longer than 500ms)")
		if rec := w.record(); rec.Code != gitgw.CodeTooLong {
			t.Errorf("record: %+v", rec)
		}
		(<-f.taken)()
		nothingLeft(t, f.n)
	})
}
