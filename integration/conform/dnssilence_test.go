package main

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Only the lack of a reply is taken for one: a message that cannot be read is a reply, and
// what breaks here is no silence of the appliance's.
func TestSilenceIsToldApart(t *testing.T) {
	raw, err := new(dns.Msg).SetQuestion("a.example.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		network string
		answer  func(conn net.Conn, raw []byte)
		silent  bool
	}{
		{"nothing over UDP", "udp4", func(net.Conn, []byte) {}, true},
		{"nothing over TCP", "tcp4", func(net.Conn, []byte) { time.Sleep(400 * time.Millisecond) }, true},
		{"an end", "tcp4", func(net.Conn, []byte) {}, true},
		{"half a length", "tcp4", func(conn net.Conn, _ []byte) { _, _ = conn.Write([]byte{0}) }, false},
		{"half a message", "tcp4", func(conn net.Conn, _ []byte) { _, _ = conn.Write([]byte{0, 40, 1, 2, 3}) }, false},
		{"a reset", "tcp4", func(conn net.Conn, _ []byte) { _ = conn.(*net.TCPConn).SetLinger(0) }, false},
		{"a few bytes", "udp4", func(conn net.Conn, _ []byte) { _, _ = conn.Write([]byte{1, 2, 3}) }, false},
		{"a message cut short", "udp4", func(conn net.Conn, raw []byte) { _, _ = conn.Write(raw[:len(raw)-3]) }, false},
		{"no message", "tcp4", func(conn net.Conn, _ []byte) {
			_, _ = conn.Write([]byte{0, 14, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := replying(t, c.network, c.answer)
			_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
			m, err := exchange(conn, raw)
			if err == nil || errors.Is(err, errDropped) != c.silent {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("udp4", packets.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = packets.Close()
		if _, err := exchange(conn, raw); !errors.Is(err, errDropped) {
			t.Error(err)
		}
	})
	t.Run("our own end", func(t *testing.T) {
		conn := replying(t, "udp4", func(net.Conn, []byte) {})
		_ = conn.Close()
		if _, err := exchange(conn, raw); err == nil || errors.Is(err, errDropped) {
			t.Error(err)
		}
	})
	for err, silent := range map[error]bool{
		os.ErrDeadlineExceeded: true, syscall.ECONNREFUSED: true,
		syscall.ECONNRESET: false, syscall.EMFILE: false, syscall.ENETUNREACH: false, net.ErrClosed: false,
	} {
		if got := errors.Is(dropped(&net.OpError{Op: "read", Err: err}), errDropped); got != silent {
			t.Errorf("%v: %t", err, got)
		}
	}
}

// replying connects to a server that reads one message and answers as it is told.
func replying(t *testing.T, network string, answer func(conn net.Conn, raw []byte)) net.Conn {
	t.Helper()
	buf := make([]byte, 512)
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	if network == "udp4" {
		packets, err := net.ListenUDP(network, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial(network, packets.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() {
			defer close(done)
			_ = packets.SetReadDeadline(time.Now().Add(5 * time.Second))
			n, from, err := packets.ReadFromUDP(buf)
			if err == nil {
				answer(&packetTo{packets, from}, buf[:n])
			}
		}()
		t.Cleanup(func() { _ = packets.Close() })
		return conn
	}
	ln, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := conn.Read(buf); err == nil {
			answer(conn, buf[:n])
		}
	}()
	conn, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// packetTo writes to one client of a socket.
type packetTo struct {
	*net.UDPConn
	to *net.UDPAddr
}

func (p *packetTo) Write(b []byte) (int, error) { return p.WriteToUDP(b, p.to) }
