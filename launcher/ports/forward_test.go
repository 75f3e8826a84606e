package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postern/launcher/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// far is a sandbox whose loopback is this host's.
type far struct{ fail error }

func (s far) Dial(ctx context.Context, port uint16) (*net.TCPConn, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	return dialHost(ctx, port)
}

func (s far) Listen(ctx context.Context, port uint16) ([]*net.TCPListener, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	return publish(ctx, Publish{Host: port})
}

// server answers every connection by itself.
func server(t *testing.T, handle func(*net.TCPConn)) uint16 {
	t.Helper()
	ln, err := listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return port(ln)
}

func port(ln *net.TCPListener) uint16 {
	return netip.MustParseAddrPort(ln.Addr().String()).Port()
}

// free is a port that nobody listens on: none of those that the kernel gives to whoever
// asks for any, so that nobody takes it in the meantime.
func free(tb testing.TB) uint16 {
	tb.Helper()
	for range 100 {
		want := uint16(10000 + rand.IntN(9000))
		ln, err := listen(tb.Context(), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), want))
		if err != nil {
			continue
		}
		_ = ln.Close()
		return want
	}
	tb.Fatal("no port is free")
	return 0
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func started(t *testing.T, set Set) *Forward {
	t.Helper()
	f, err := Open(t.Context(), set)
	must(t, err)
	t.Cleanup(f.Close)
	must(t, f.Start(t.Context(), far{}))
	return f
}

func dial(t *testing.T, host string, port uint16) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", net.JoinHostPort(host, fmt.Sprint(port)), 10*time.Second)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return c.(*net.TCPConn)
}

// Bytes and ends go both ways, by themselves.
func TestBothWays(t *testing.T) {
	// It answers when it has heard all, and hears what is said after its own end.
	heard := make(chan string, 10)
	origin := server(t, func(c *net.TCPConn) {
		if _, err := io.WriteString(c, "first\n"); err != nil {
			return
		}
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	})
	for _, way := range []string{"publish", "grant"} {
		for _, host := range []string{"127.0.0.1", "::1"} {
			t.Run(way+" "+host, func(t *testing.T) {
				near := free(t)
				set := Set{Publish: []Publish{{Host: near, Inside: origin}}}
				if way == "grant" {
					set = Set{Grants: []Grant{{Inside: near, Host: origin}}}
				}
				started(t, set)
				c := dial(t, host, near)
				if got, err := io.ReadAll(c); err != nil || string(got) != "first\n" {
					t.Fatalf("got %q, %v", got, err)
				}
				_, err := io.WriteString(c, "second")
				must(t, errors.Join(err, c.CloseWrite()))
				if got := <-heard; got != "second" {
					t.Errorf("it heard %q", got)
				}
			})
		}
	}
}

// Nobody there, on either side, is a reset and not an empty answer.
func TestNobodyThere(t *testing.T) {
	for name, set := range map[string]Set{
		"publish": {Publish: []Publish{{Host: 0, Inside: free(t)}}},
		"grant":   {Grants: []Grant{{Inside: 0, Host: free(t)}}},
	} {
		t.Run(name, func(t *testing.T) {
			near := free(t)
			if len(set.Publish) > 0 {
				set.Publish[0].Host = near
			} else {
				set.Grants[0].Inside = near
			}
			started(t, set)
			c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", near), 10*time.Second)
			var got []byte
			if err == nil { // else it came at once
				defer c.Close()
				must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
				got, err = io.ReadAll(c)
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %q, %v; want a reset", got, err)
			}
		})
	}
}

// A broken connection is not passed on as a proper end.
func TestResetIsPassedOn(t *testing.T) {
	origin := server(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		reset(c)
	})
	near := free(t)
	started(t, Set{Publish: []Publish{{Host: near, Inside: origin}}})
	c := dial(t, "127.0.0.1", near)
	_, err := c.Write([]byte("x"))
	must(t, err)
	if got, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v; want a reset", got, err)
	}
}

// Beyond the bound connections wait; one that ends lets the next in.
func TestConnectionsAreBounded(t *testing.T) {
	origin := server(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	near := free(t)
	f := started(t, Set{Publish: []Publish{{Host: near, Inside: origin}}})
	echo := func(c *net.TCPConn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	var open []*net.TCPConn
	for range maxConns {
		c := dial(t, "127.0.0.1", near)
		must(t, echo(c))
		open = append(open, c)
	}
	late := dial(t, "127.0.0.1", near)
	must(t, late.SetDeadline(time.Now().Add(200*time.Millisecond)))
	if err := echo(late); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("beyond the bound: %v", err)
	}
	must(t, open[0].Close())
	must(t, late.SetDeadline(time.Now().Add(30*time.Second)))
	_, err := io.ReadFull(late, make([]byte, 1))
	must(t, err)
	if n := len(f.seats); n != maxConns {
		t.Errorf("%d seats are taken, want %d", n, maxConns)
	}
}

// What the sandbox said last arrives, although its end closes everything; who never
// reads holds nobody up.
func TestTheLastWordsArrive(t *testing.T) {
	answer := make([]byte, 1<<20)
	sent := make(chan struct{}, 2)
	origin := server(t, func(c *net.TCPConn) {
		_, _ = c.Write(answer)
		sent <- struct{}{}
	})
	near := free(t)
	f := started(t, Set{Publish: []Publish{{Host: near, Inside: origin}}})
	c := dial(t, "127.0.0.1", near)
	got := make(chan int, 1)
	go func() {
		all, _ := io.ReadAll(c)
		got <- len(all)
	}()
	<-sent
	f.Close()
	if n := <-got; n != len(answer) {
		t.Errorf("%d of %d bytes", n, len(answer))
	}
}

func TestCloseEndsWhatStays(t *testing.T) {
	origin := server(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	near := free(t)
	f := started(t, Set{Publish: []Publish{{Host: near, Inside: origin}}})
	c := dial(t, "127.0.0.1", near)
	_, err := c.Write([]byte("x"))
	must(t, err)
	f.Close()
	if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still there")
	}
	if again, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", near), time.Second); err == nil {
		_ = again.Close()
		t.Error("the port is still there")
	}
	f.Close() // twice is once
}

func TestStartFails(t *testing.T) {
	want := errors.New("no")
	f, err := Open(t.Context(), Set{Grants: []Grant{{Inside: 1, Host: 2}}})
	must(t, err)
	defer f.Close()
	if err := f.Start(t.Context(), far{want}); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestPortsOfTheHostThatCannotBeHad(t *testing.T) {
	taken, err := listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	must(t, err)
	defer taken.Close()
	v6, err := listen(t.Context(), netip.MustParseAddrPort("[::1]:0"))
	must(t, err)
	defer v6.Close()
	for _, tc := range []struct {
		name string
		set  []Publish
		want sandbox.Reason
	}{
		{"taken", []Publish{{Host: port(taken), Inside: 80}}, sandbox.ReasonPortBusy},
		{"taken on IPv6 alone", []Publish{{Host: port(v6), Inside: 80}}, sandbox.ReasonPortBusy},
		{"the second of two", []Publish{{Host: free(t), Inside: 80}, {Host: port(taken), Inside: 80}}, sandbox.ReasonPortBusy},
		{"an address of somebody else", []Publish{{Addr: netip.MustParseAddr("192.0.2.1"), Host: free(t), Inside: 80}}, sandbox.ReasonPortAddress},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Open(t.Context(), Set{Publish: tc.set})
			r, ok := errors.AsType[*sandbox.Refusal](err)
			if !ok || r.Reason != tc.want {
				t.Fatalf("got %v, want %s", err, tc.want)
			}
			// Nothing of it is left.
			if first := tc.set[0]; first.Host != port(taken) && first.Host != port(v6) {
				if c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", first.Host), time.Second); err == nil {
					_ = c.Close()
					t.Error("the first port is still taken")
				}
			}
		})
	}
	// As a user whom the kernel does not let.
	err = refusal(Publish{Host: 80, Inside: 3000}, netip.MustParseAddrPort("127.0.0.1:80"), syscall.EACCES)
	if r, ok := errors.AsType[*sandbox.Refusal](err); !ok || r.Reason != sandbox.ReasonPortDenied {
		t.Errorf("got %v", err)
	}
}
