package lease

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socket listens on a fresh lease socket and returns its path.
func socket(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	// t.TempDir holds the test's name and may exceed the 108 bytes of a path.
	dir, err := os.MkdirTemp("", "lease") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "lease.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln, path
}

// newPair makes two listeners as a launcher does.
func newPair(t *testing.T) Pair {
	t.Helper()
	var p Pair
	for _, ln := range []**net.TCPListener{&p.HTTP, &p.SOCKS} {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		*ln = l
	}
	return p
}

// result is what the appliance's end made of one connection.
type result struct {
	req *Request
	err error
}

// serve accepts one connection with a in the background.
func serve(t *testing.T, ln *net.UnixListener, a *Acceptor) <-chan result {
	t.Helper()
	out := make(chan result, 1)
	go func() {
		c, err := ln.AcceptUnix()
		if err != nil {
			out <- result{nil, err}
			return
		}
		req, err := a.Accept(c)
		out <- result{req, err}
	}()
	return out
}

// grant takes one hello and answers it with a.
func grant(t *testing.T, ln *net.UnixListener, a Answer) <-chan result {
	t.Helper()
	in, out := serve(t, ln, &Acceptor{}), make(chan result, 1)
	go func() {
		r := <-in
		if r.err == nil {
			r.err = r.req.Reply(a)
		}
		out <- r
	}()
	return out
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return c
}

func TestLendAndAccept(t *testing.T) {
	ln, path := socket(t)
	served := grant(t, ln, Answer{OK: true, Session: Info{ID: "run-1", Policy: "agent"}, ReadToken: "tok", Born: "b1", Git: Git{URL: "http://git.internal/", Forges: []string{"github.com"}}})
	pair := newPair(t)
	off := false
	h := Hello{
		Spec:   Spec{ID: "run-1", Policy: "agent", NetworkEnabled: &off, EgressAllowlist: []string{"example.com 443"}, Repository: "github.com/acme/app"},
		Resume: &Resume{ReadToken: "old", Born: "b0"},
	}
	l, err := Lend(ctx(t), path, h, pair)
	if err != nil {
		t.Fatal(err)
	}
	r := <-served
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.req.Close()

	got := r.req.Hello
	if got.Version != Version || got.PID != os.Getpid() || got.Spec.ID != "run-1" || got.Spec.Network() || got.Resume.ReadToken != "old" {
		t.Errorf("hello arrived as %+v", got.Spec)
	}
	if r.req.PeerUID != os.Geteuid() || r.req.PeerPID != os.Getpid() {
		t.Errorf("peer is uid %d pid %d", r.req.PeerUID, r.req.PeerPID)
	}
	if a := l.Answer(); a.ReadToken != "tok" || a.Git.Forges[0] != "github.com" || a.Session.Policy != "agent" {
		t.Errorf("answer arrived as %v", a)
	}
	// The order of the two listeners is part of the format.
	if r.req.Pair.HTTP.Addr().String() != pair.HTTP.Addr().String() || r.req.Pair.SOCKS.Addr().String() != pair.SOCKS.Addr().String() {
		t.Error("the listeners arrived in another order")
	}
	answers(t, r.req.Pair.HTTP, pair.HTTP.Addr().String())

	want := Event{Time: time.Unix(1700000000, 0).UTC(), Type: EventDenied, Session: "run-1", Fields: map[string]any{"target": "evil.example:443"}}
	if err := r.req.Send(want); err != nil {
		t.Fatal(err)
	}
	if e := <-l.Events(); e.Type != EventDenied || !e.Time.Equal(want.Time) || e.Text("target") != "evil.example:443" {
		t.Errorf("event arrived as %+v", e)
	}

	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r.req.Wait()
	if _, open := <-l.Events(); open {
		t.Error("events go on after the lease")
	}
	<-l.Done()
}

// answers fails unless ln takes a connection made to addr.
func answers(t *testing.T, ln *net.TCPListener, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = ln.SetDeadline(time.Now().Add(5 * time.Second))
	s, err := ln.Accept()
	if err != nil {
		t.Fatalf("accept from %s: %v", addr, err)
	}
	s.Close()
}

// A connection made while no appliance lives waits in the backlog of the
// launcher's duplicate and is answered by the next appliance.
func TestBacklogSurvivesTheAppliance(t *testing.T) {
	ln, path := socket(t)
	pair := newPair(t)
	for round := range 3 {
		served := grant(t, ln, Answer{OK: true})
		waiting, err := net.Dial("tcp", pair.HTTP.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}}, pair)
		if err != nil {
			t.Fatal(err)
		}
		r := <-served
		if r.err != nil {
			t.Fatal(r.err)
		}
		_ = r.req.Pair.HTTP.SetDeadline(time.Now().Add(5 * time.Second))
		s, err := r.req.Pair.HTTP.Accept()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		s.Close()
		waiting.Close()
		r.req.Close() // the appliance is gone, its listeners with it
		<-l.Done()
		l.Close()
	}
}

func TestLendWithoutAppliance(t *testing.T) {
	ln, path := socket(t)
	ln.SetUnlinkOnClose(false)
	ln.Close() // leaves a file nobody answers
	for name, p := range map[string]string{"refused": path, "absent": path + ".none"} {
		if _, err := Lend(ctx(t), p, Hello{Spec: Spec{ID: "a"}}, newPair(t)); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: %v, want ErrNotRunning", name, err)
		}
	}
}
