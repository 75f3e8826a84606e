package session

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// A thousand sessions come and go: the time for one does not grow with their
// number, and nothing is left of them.
func TestAThousandSessions(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 200
	}
	r := newRegistry(t)
	upstream := echo(t)
	g := generation(t, r, rule(upstream))
	r.Push(g)
	open(t, r, lease.Spec{ID: "warm"})
	if err := r.Close("warm"); err != nil {
		t.Fatal(err)
	}
	idle, fds := runtime.NumGoroutine(), descriptors(t)

	start := time.Now()
	half := time.Duration(0)
	for i := range n {
		if i == n/2 {
			half = time.Since(start)
		}
		open(t, r, lease.Spec{ID: fmt.Sprint("s", i), EgressAllowlist: []string{"x.example 443"}})
	}
	opened := time.Since(start)
	if second := opened - half; second > 5*half+time.Second {
		t.Errorf("the first half took %v, the second %v", half, second)
	}
	if got := len(r.Snapshot()); got != n {
		t.Fatalf("%d sessions", got)
	}
	if each := (runtime.NumGoroutine() - idle) / n; each > 3 {
		t.Errorf("%d goroutines a session", each)
	}

	next := generation(t, r, rule(upstream))
	start = time.Now()
	r.Push(next)
	r.Drop(g)
	reload := time.Since(start)
	s, _ := r.Lookup("s0")
	if got := connect(t, "tcp", s.HTTP, upstream); got.status != http.StatusOK {
		t.Errorf("after a reload with all of them: %s", got.phrase)
	} else {
		got.Close()
	}

	start = time.Now()
	for i := range n {
		if err := r.Close(fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d sessions: opened in %v, reloaded in %v, closed in %v", n, opened, reload, time.Since(start))
	if len(r.own.ports) != 0 || len(r.sessions) != 0 {
		t.Errorf("left behind: %d ports, %d sessions", len(r.own.ports), len(r.sessions))
	}
	eventually(t, "goroutines and descriptors are as before", func() bool {
		return runtime.NumGoroutine() <= idle && descriptors(t) <= fds
	})
}

func descriptors(tb testing.TB) int {
	tb.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		tb.Fatal(err)
	}
	return len(entries)
}

func BenchmarkOpenClose(b *testing.B) {
	r := newRegistry(b)
	r.ports = newPorts("20000-60000")
	r.Push(generation(b, r))
	for i := range b.N {
		id := fmt.Sprint("s", i%10000)
		if _, err := r.Open(b.Context(), lease.Spec{ID: id, Listen: &lease.Listen{Network: lease.NetworkUnix}}, 0); err != nil {
			b.Fatal(err)
		}
		if err := r.Close(id); err != nil {
			b.Fatal(err)
		}
	}
}
