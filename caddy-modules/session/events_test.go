package session

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"postern/caddy-modules/session/lease"
)

func TestHubDelivers(t *testing.T) {
	h := newHub()
	all, a, b := h.subscribe("", 10), h.subscribe("a", 10), h.subscribe("b", 10)
	h.publish(lease.Event{Type: "x", Session: "a"})
	h.publish(lease.Event{Type: "y"})
	h.publish(lease.Event{Type: "z", Session: "c"})
	for name, c := range map[string]struct {
		s    *subscriber
		want string
	}{"all": {all, "xyz"}, "a": {a, "x"}, "b": {b, ""}} {
		c.s.cancel()
		c.s.cancel()
		got := ""
		for e := range c.s.ch {
			got += e.Type
			if e.Time.IsZero() {
				t.Errorf("%s: an event without a time", name)
			}
		}
		if got != c.want {
			t.Errorf("%s got %q, want %q", name, got, c.want)
		}
	}
	if len(h.all) != 0 || len(h.one) != 0 {
		t.Errorf("left behind: %v %v", h.all, h.one)
	}
	h.publish(lease.Event{Type: "late", Session: "a"})
}

// Publishing never waits for a reader, and a reader learns what it lost.
func TestHubDropsAndSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s := h.subscribe("", 3)
		for i := range 10 {
			h.publish(lease.Event{Type: fmt.Sprint(i)})
		}
		if h.dropped.Load() != 7 {
			t.Errorf("%d dropped", h.dropped.Load())
		}
		var got []string
		stop := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- s.each(stop, func(e lease.Event) error {
				got = append(got, fmt.Sprint(e.Type, e.Fields["count"]))
				return nil
			})
		}()
		synctest.Wait()
		h.publish(lease.Event{Type: "after"})
		synctest.Wait()
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := "[dropped7 0<nil> 1<nil> 2<nil> after<nil>]"
		if fmt.Sprint(got) != want {
			t.Errorf("got %v, want %v", got, want)
		}
		s.cancel()
	})
}

func TestEachEndsWithItsReader(t *testing.T) {
	h := newHub()
	s := h.subscribe("", 3)
	broken := errors.New("broken")
	h.publish(lease.Event{Type: "x"})
	if err := s.each(nil, func(lease.Event) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	for range 5 {
		h.publish(lease.Event{Type: "x"})
	}
	if err := s.each(nil, func(lease.Event) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("while telling of a gap: %v", err)
	}
	s.cancel()
}

func TestHubCloses(t *testing.T) {
	h := newHub()
	a, all := h.subscribe("a", 1), h.subscribe("", 1)
	h.publish(lease.Event{Type: "last", Session: "a"})
	h.close()
	for _, s := range []*subscriber{a, all} {
		if e, open := <-s.ch; !open || e.Type != "last" {
			t.Error("what was queued is lost")
		}
		if _, open := <-s.ch; open {
			t.Error("still open")
		}
	}
	late := h.subscribe("", 1)
	if _, open := <-late.ch; open {
		t.Error("a subscription to a closed hub is open")
	}
	late.cancel()
}

// The event sink of the generation that governs gets every event, from one
// goroutine, and a slow one holds up nobody.
func TestEmit(t *testing.T) {
	r := newRegistry(t)
	var a, b sink
	release := make(chan struct{})
	ga, gb := generation(t, r), generation(t, r)
	ga.Emit = func(e lease.Event) { <-release; a.add(e) }
	gb.Emit = b.add
	r.Publish(lease.Event{Type: "nobody"})
	r.Push(ga)
	start := time.Now()
	for range 2 * emitQueue {
		r.Publish(lease.Event{Type: "x"})
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("publishing took %v", d)
	}
	if r.hub.dropped.Load() == 0 {
		t.Error("a queue without bounds")
	}
	close(release)
	eventually(t, "the queue is drained", func() bool { return len(a.of("x")) >= emitQueue-1 })
	eventually(t, "the loss is told", func() bool { return len(a.of(lease.EventDropped)) > 0 })
	r.Push(gb)
	r.Publish(lease.Event{Type: "y"})
	eventually(t, "the newest sink gets it", func() bool { return len(b.of("y")) == 1 })
	if len(a.of("y")) != 0 {
		t.Error("the older sink got it too")
	}
}

// What was published before a reader is stopped it still gets: the last events of a process
// are those about its end.
func TestEventsBeforeTheEnd(t *testing.T) {
	for range 100 {
		h := newHub()
		s := h.subscribe("", 8)
		stop := make(chan struct{})
		for range 5 {
			h.publish(lease.Event{Type: "x"})
		}
		close(stop)
		got := 0
		if err := s.each(stop, func(lease.Event) error { got++; return nil }); err != nil || got != 5 {
			t.Fatalf("%d events of 5 (%v)", got, err)
		}
	}
}
