package session

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// say accepts from l and sends name to everyone.
func say(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, name)
		c.Close()
	}
}

// hear dials and returns what is sent.
func hear(t *testing.T, n *Network, name string) string {
	t.Helper()
	c, err := n.Dial(t.Context(), name, "a")
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	b, _ := io.ReadAll(c)
	return string(b)
}

func listen(t *testing.T, n *Network, name string) net.Listener {
	t.Helper()
	l, err := n.Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The newest listener gets the connections, and gives them back.
func TestNetworkStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		expect := func(want string) {
			t.Helper()
			if got := hear(t, n, "git"); !strings.Contains(got, want) {
				t.Errorf("heard %q, want %q", got, want)
			}
		}
		expect("nothing in the configuration listens there")
		a := listen(t, n, "git")
		go say(a, "a")
		expect("a")
		b := listen(t, n, "git")
		go say(b, "b")
		expect("b")
		other := listen(t, n, "metrics")
		go say(other, "other")
		expect("b")
		// A commit closes the older one, which takes nothing from the newer.
		a.Close()
		expect("b")
		c := listen(t, n, "git")
		go say(c, "c")
		expect("c")
		// A rollback closes the newest.
		c.Close()
		expect("b")
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
		if _, err := c.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v", err)
		}
		b.Close()
		expect("nothing")
		if got := n.listening(); len(got) != 1 || got[0] != "metrics" {
			t.Errorf("still listening: %v", got)
		}
		other.Close()
	})
	if _, err := newNetwork().Listen(""); err == nil {
		t.Error("a listener without a name")
	}
}

// A connection that waits at a listener which closes goes to the next one.
func TestNetworkPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a := listen(t, n, "git")
		b := listen(t, n, "git") // accepts nothing yet: its server is only starting
		heard := make(chan string, 1)
		go func() { heard <- hear(t, n, "git") }()
		synctest.Wait()
		go say(a, "a")
		synctest.Wait()
		select {
		case s := <-heard:
			t.Errorf("%q took a connection of its successor", s)
		default:
		}
		b.Close()
		if s := <-heard; s != "a" {
			t.Errorf("heard %q", s)
		}
		a.Close()
	})
}

func TestNetworkDialEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		l := listen(t, n, "git")
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := n.Dial(ctx, "git", "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial: %v", err)
		}
		if d := time.Since(start); d != time.Minute {
			t.Errorf("after %v", d)
		}
	})
}

func TestNetworkAddresses(t *testing.T) {
	n := newNetwork()
	l := listen(t, n, "git")
	defer l.Close()
	var server net.Conn
	var wg sync.WaitGroup
	wg.Go(func() { server, _ = l.Accept() })
	client, err := n.Dial(t.Context(), "git", "run-1")
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	defer client.Close()
	defer server.Close()
	for got, want := range map[string]string{
		server.RemoteAddr().String(): "run-1:0", server.LocalAddr().String(): "git:0",
		client.RemoteAddr().String(): "git:0", client.LocalAddr().String(): "run-1:0", l.Addr().String(): "git:0",
	} {
		if got != want {
			t.Errorf("address %q, want %q", got, want)
		}
	}
	if server.RemoteAddr().Network() != "sandbox" {
		t.Errorf("network %q", server.RemoteAddr().Network())
	}
	host, _, err := net.SplitHostPort(server.RemoteAddr().String())
	if err != nil || host != "run-1" {
		t.Errorf("an HTTP server would read %q, %v", host, err)
	}
}

// Connections go on through reloads: each is accepted by one server, which keeps
// it although its listener closes, and none is lost between two.
func TestNetworkUnderReloads(t *testing.T) {
	n := newNetwork()
	var wg, dialling sync.WaitGroup
	serve := func() net.Listener {
		l := listen(t, n, "git")
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					defer c.Close()
					line, err := bufio.NewReader(c).ReadString('\n')
					if err == nil {
						_, _ = io.WriteString(c, c.RemoteAddr().String()+" "+line)
					}
				})
			}
		})
		return l
	}
	current := serve()
	stop := make(chan struct{})
	var dialled atomic.Int64
	for _, pause := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		dialling.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := n.Dial(t.Context(), "git", "run-1")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(pause)
				_, _ = io.WriteString(c, "hello\n")
				body, err := io.ReadAll(c)
				c.Close()
				if err != nil || string(body) != "run-1:0 hello\n" {
					t.Errorf("%q, %v", body, err)
					return
				}
				dialled.Add(1)
			}
		})
	}
	for i := range 30 {
		next := serve()
		if i%3 == 2 {
			next.Close() // rolled back
		} else {
			current.Close()
			current = next
		}
		time.Sleep(2 * time.Millisecond)
	}
	close(stop)
	dialling.Wait() // the last listener outlives the last dial
	current.Close()
	wg.Wait()
	if dialled.Load() == 0 {
		t.Error("nothing was dialled")
	}
}
