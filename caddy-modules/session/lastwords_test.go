package session

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// A command is refused the same host three times, its push ends, and it is over: the
// launcher hears all of it before its own report comes back, and knows then that there
// is no more.
func TestExitComesBackBehindEverything(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	openDoors(t, r)
	p := pair(t)
	addr := p.HTTP.Addr().String()
	l, err := lend(t, filepath.Join(r.options.RunDir, LeaseSocket), lease.Hello{Spec: lease.Spec{ID: "one"}}, p)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "CONNECT 127.0.0.2:443 HTTP/1.1\r\nHost: 127.0.0.2:443\r\n\r\n")
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	life, ok := r.Life("one")
	if !ok {
		t.Fatal("no session")
	}
	release, _ := life.Hold()
	time.AfterFunc(20*time.Millisecond, func() {
		r.Publish(lease.Event{Type: lease.EventPush, Session: "one"})
		release()
	})
	if err := l.Report(lease.Event{Type: lease.EventExit, Fields: map[string]any{"exitCode": 0}}); err != nil {
		t.Fatal(err)
	}
	refused, pushes := 0.0, 0
	for e := range l.Events() {
		switch e.Type {
		case lease.EventDenied:
			refused += e.Fields["count"].(float64)
		case lease.EventPush:
			pushes++
		case lease.EventExit:
			if refused != 3 || pushes != 1 {
				t.Errorf("%v refusals and %d pushes were told before", refused, pushes)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Error("the report does not come back")
}

// What does not come to rest holds nobody up for long, and ends nothing.
func TestRestIsBounded(t *testing.T) {
	var w work
	finished, _ := w.begin()
	w.rest(10 * time.Millisecond)
	again, ok := w.begin()
	if !ok {
		t.Fatal("nothing begins any more")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.rest(time.Minute)
	}()
	finished()
	again()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it rests, and nobody was told")
	}
}
