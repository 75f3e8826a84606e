package session

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
)

// Everything at once: what the race detector, the leak detector and a deadlock
// would show.
func TestEverythingAtOnce(t *testing.T) {
	upstream := echo(t)
	r, g, f, path := leased(t, rule(upstream))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(body func(i int)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					body(i)
				}
			}
		})
	}
	loop(func(i int) { // reloads, one in three of which fails
		next := generation(t, r, rule(upstream))
		next.Broker = f
		next.Limits = proxy.Limits{Idle: time.Duration(i%2+1) * time.Minute}
		r.Push(next)
		if i%3 == 0 {
			r.Drop(next)
			return
		}
		r.Drop(g)
		g = next
	})
	for n := range 3 { // a host, with ids that collide
		loop(func(i int) {
			id := fmt.Sprint("api", (i+n)%4)
			_, err := r.Open(t.Context(), lease.Spec{ID: id, Repository: "github.com/acme/app", Listen: &lease.Listen{Network: lease.NetworkUnix}}, 0)
			if code := codeOf(err); err != nil && code != lease.CodeClosing && code != lease.CodeUnavailable && code != lease.CodeEnded {
				t.Error(err)
			}
			if i%2 == 0 {
				_ = r.Close(id)
			}
		})
	}
	loop(func(i int) { // a launcher
		p := newPair(t)
		defer p.Close()
		l, err := lease.Lend(t.Context(), path, lease.Hello{Spec: lease.Spec{ID: fmt.Sprint("run", i%2), Repository: "github.com/acme/app"}}, p)
		if err != nil {
			if codeOf(err) != lease.CodeInUse {
				t.Error(err)
			}
			return
		}
		if c, err := net.Dial("tcp", p.HTTP.Addr().String()); err == nil {
			fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", upstream, upstream)
			_, _ = c.Read(make([]byte, 64))
			c.Close()
		}
		l.Close()
	})
	loop(func(int) { // onlookers
		_ = r.Snapshot()
		_, _ = r.Lookup("api0")
		r.Publish(lease.Event{Type: "x", Session: "api0"})
		s := r.hub.subscribe("api0", 1)
		s.cancel()
		time.Sleep(time.Millisecond)
	})
	time.Sleep(time.Second)
	close(stop)
	wg.Wait()
	if err := r.Destruct(); err != nil {
		t.Error(err)
	}
	if f.alive() != 0 {
		t.Errorf("%d tokens are left", f.alive())
	}
	if len(r.sessions) != 0 || len(r.own.sets) != 0 {
		t.Errorf("left behind: %d sessions, %d own", len(r.sessions), len(r.own.sets))
	}
}
