package proxy

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// tcpPair gives the two ends of a connection.
func tcpPair(tb testing.TB) (a, b *net.TCPConn) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	return near.(*net.TCPConn), far.(*net.TCPConn)
}

func unixPair(tb testing.TB) (a, b net.Conn) {
	tb.Helper()
	ln, err := net.Listen("unix", filepath.Join(tb.TempDir(), "s"))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	a, err = net.Dial("unix", ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	b, err = ln.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

// quietWatch never ends anything.
func quietWatch(tb testing.TB) *watch {
	tb.Helper()
	w := new(watch)
	w.begin(time.Hour, nil)
	tb.Cleanup(w.stop)
	return w
}

type ends struct{ client, near, far, upstream net.Conn }

// Over every kind of connection the relay carries bytes both ways unchanged,
// passes each end on, and counts.
func TestRelay(t *testing.T) {
	for name, make := range map[string]func(testing.TB) ends{
		"TCP to TCP": func(tb testing.TB) ends {
			tb.Helper()
			a, b := tcpPair(tb)
			c, d := tcpPair(tb)
			return ends{a, b, c, d}
		},
		"Unix to TCP": func(tb testing.TB) ends {
			tb.Helper()
			a, b := unixPair(tb)
			c, d := tcpPair(tb)
			return ends{a, b, c, d}
		},
		"TCP to pipe": func(tb testing.TB) ends {
			tb.Helper()
			a, b := tcpPair(tb)
			c, d := net.Pipe()
			return ends{a, b, c, d}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := make(t)
			up, down := random(t, 3<<20+17), random(t, 5<<20+3)
			type counts struct {
				up, down int64
				err      error
			}
			done := goResult(func() counts {
				u, d, err := relay(e.near, e.far, quietWatch(t), atOnce)
				_, _ = e.near.Close(), e.far.Close()
				return counts{u, d, err}
			})
			atClient := goResult(func() []byte { return drain(e.client) })
			atUpstream := goResult(func() []byte {
				got := readN(e.upstream, len(up))
				_, _ = e.upstream.Write(down)
				_ = e.upstream.Close()
				return got
			})
			if _, err := e.client.Write(up); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(<-atUpstream, up) {
				t.Error("other bytes went up")
			}
			// A pipe has no half-close; the client's end would close it.
			if cw, ok := e.client.(closeWriter); ok {
				_ = cw.CloseWrite()
			}
			if !bytes.Equal(<-atClient, down) {
				t.Error("other bytes came down")
			}
			if c := <-done; c.up != int64(len(up)) || c.down != int64(len(down)) {
				t.Errorf("counted %d up, %d down, %v", c.up, c.down, c.err)
			}
		})
	}
}

func random(tb testing.TB, n int) []byte {
	tb.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		tb.Fatal(err)
	}
	return b
}

func goResult[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

func drain(c net.Conn) []byte {
	b, _ := io.ReadAll(c)
	return b
}

func readN(c net.Conn, n int) []byte {
	b := make([]byte, n)
	m, _ := io.ReadFull(c, b)
	return b[:m]
}

// A break on one side is a break on the other, in both directions.
func TestRelayBreaks(t *testing.T) {
	for name, pick := range map[string]func(e ends) (breaks, sees net.Conn){
		"the client":   func(e ends) (net.Conn, net.Conn) { return e.client, e.upstream },
		"the upstream": func(e ends) (net.Conn, net.Conn) { return e.upstream, e.client },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcpPair(t)
			c, d := tcpPair(t)
			e := ends{a, b, c, d}
			done := goResult(func() error {
				_, _, err := relay(e.near, e.far, quietWatch(t), atOnce)
				return err
			})
			breaks, sees := pick(e)
			reset(breaks)
			_ = sees.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := sees.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the other side sees %v, want a reset", err)
			}
			if err := <-done; err == nil {
				t.Error("no error")
			}
		})
	}
}

// A side that leaves in good order while nothing is under way is no failure.
func TestRelayEndsQuietly(t *testing.T) {
	a, b := tcpPair(t)
	c, d := tcpPair(t)
	done := goResult(func() error {
		_, _, err := relay(b, c, quietWatch(t), atOnce)
		return err
	})
	_ = a.Close()
	_ = drain(d)
	_ = d.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Bytes that stand in a pipe while the receiver does not read must arrive once
// it does, and never in another tunnel.
func TestRelaySlowReader(t *testing.T) {
	data := random(t, 8<<20)
	const tunnels = 6
	results := make(chan bool, tunnels)
	for range tunnels {
		a, b := tcpPair(t)
		c, d := tcpPair(t)
		go func() { _, _, _ = relay(b, c, quietWatch(t), atOnce) }()
		go func() { _, _ = a.Write(data); _ = a.CloseWrite() }()
		go func() {
			time.Sleep(50 * time.Millisecond)
			var got bytes.Buffer
			buf := make([]byte, 100<<10)
			for {
				n, err := d.Read(buf)
				got.Write(buf[:n])
				if err != nil {
					break
				}
				runtime.Gosched()
			}
			_ = d.Close()
			results <- bytes.Equal(got.Bytes(), data)
		}()
	}
	for range tunnels {
		if !<-results {
			t.Error("other bytes arrived")
		}
	}
}

// atOnce lets a relay begin without a look at what the client sends.
func atOnce() (int64, error) { return 0, nil }
