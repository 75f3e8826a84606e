package dnsguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// dialServer starts a server of v on loopback and connects to it.
func dialServer(tb testing.TB, v *View, proto string) (conn net.Conn, stop func()) {
	tb.Helper()
	s := startServer(tb, v)
	addr := s.packets.LocalAddr().String()
	if proto == TCP {
		addr = s.streams.Addr().String()
	}
	conn, err := net.Dial(proto, addr)
	if err != nil {
		tb.Fatal(err)
	}
	return conn, func() {
		conn.Close()
		s.stop()
	}
}

type runningServer struct {
	*Server
	packets net.PacketConn
	streams net.Listener
	stop    func()
}

func startServer(tb testing.TB, v *View) *runningServer {
	tb.Helper()
	s := &runningServer{Server: NewServer(v)}
	var err error
	if s.packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	if s.streams, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(s.packets, s.streams) }()
	s.stop = sync.OnceFunc(func() {
		s.Close()
		select {
		case err := <-served:
			if err != nil {
				tb.Errorf("serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			tb.Error("the server does not stop")
		}
	})
	tb.Cleanup(s.stop)
	return s
}

func exchangeOn(t *testing.T, conn net.Conn, wire []byte) *dns.Msg {
	t.Helper()
	framed := &dns.Conn{Conn: conn, UDPSize: 65535}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := framed.Write(wire); err != nil {
		t.Fatal(err)
	}
	m, err := framed.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestServerRawMessages sends bytes that no client library writes.
func TestServerRawMessages(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "*.example.com")
	s := startServer(t, v)
	header := func(flags uint16, counts ...uint16) []byte {
		b := binary.BigEndian.AppendUint16(nil, 0x4711)
		b = binary.BigEndian.AppendUint16(b, flags)
		for i := range 4 {
			n := uint16(0)
			if i < len(counts) {
				n = counts[i]
			}
			b = binary.BigEndian.AppendUint16(b, n)
		}
		return b
	}
	const rd = 1 << 8
	name := func(b []byte, labels ...string) []byte {
		for _, label := range labels {
			b = append(append(b, byte(len(label))), label...)
		}
		return append(b, 0)
	}
	question := func(b []byte) []byte { return append(b, 0, 1, 0, 1) }
	for _, c := range []struct {
		name  string
		wire  []byte
		rcode int // -1: no answer
	}{
		{"honest", question(name(header(rd, 1), "a", "example", "com")), dns.RcodeSuccess},
		{"dot in a label", question(name(header(rd, 1), "evil.x", "example", "com")), dns.RcodeRefused},
		{"NUL in a label", question(name(header(rd, 1), "evil\x00", "example", "com")), dns.RcodeRefused},
		{"backslash in a label", question(name(header(rd, 1), `evil\`, "example", "com")), dns.RcodeRefused},
		{"the whole allowed name in one label", question(name(header(rd, 1), "a.example.com")), dns.RcodeRefused},
		{"UTF-8", question(name(header(rd, 1), "b\xc3\xbccher", "example", "com")), dns.RcodeRefused},
		{"binary label", question(name(header(rd, 1), "\xff\xfe\x01", "example", "com")), dns.RcodeRefused},
		{"no question, none announced", header(rd), dns.RcodeFormatError},
		{"no question, one announced", header(rd, 1), dns.RcodeFormatError},
		{"65535 questions announced", question(name(header(rd, 65535), "a", "example", "com")), dns.RcodeFormatError},
		{"records announced that are not there", question(name(header(rd, 1, 0, 0, 9), "a", "example", "com")), dns.RcodeSuccess},
		{"name that points to itself", question(append(header(rd, 1), 0xc0, 12)), dns.RcodeFormatError},
		{"name that points ahead", question(append(header(rd, 1), 0xc0, 200)), dns.RcodeFormatError},
		{"name that points into the header", question(append(header(rd, 1), 0xc0, 0)), dns.RcodeFormatError},
		{"two pointers in a circle", question(append(header(rd, 1), 0xc0, 14, 0xc0, 12)), dns.RcodeFormatError},
		{"label of reserved kind", question(append(header(rd, 1), 0x80, 'a', 0)), dns.RcodeFormatError},
		{"name without an end", append(header(rd, 1), 5, 'a', 'b'), dns.RcodeFormatError},
		{"question without type and class", name(header(rd, 1), "a", "example", "com"), dns.RcodeRefused},
		{"bytes after the message", append(question(name(header(rd, 1), "a", "example", "com")), "secret data"...), dns.RcodeSuccess},
		{"response", question(name(header(1<<15|rd, 1), "a", "example", "com")), -1},
		{"response that does not unpack", append(header(1<<15|rd, 1), 0xc0, 12), -1},
		{"eleven octets", header(rd, 1)[:11], -1},
		{"one octet", []byte{1}, -1},
	} {
		for _, proto := range []string{UDP, TCP} {
			t.Run(c.name+" over "+proto, func(t *testing.T) {
				l.clock.pass(time.Hour)
				l.up.queries()
				addr := s.packets.LocalAddr().String()
				if proto == TCP {
					addr = s.streams.Addr().String()
				}
				conn, err := net.Dial(proto, addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				framed := &dns.Conn{Conn: conn, UDPSize: 65535}
				if _, err := framed.Write(c.wire); err != nil {
					t.Fatal(err)
				}
				if c.rcode == -1 {
					// An honest query behind it is answered first: nothing came.
					if _, err := framed.Write(question(name(header(rd, 1), "z", "example", "com"))); err != nil {
						t.Fatal(err)
					}
				}
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
				m, err := framed.ReadMsg()
				if c.rcode == -1 {
					if err == nil && m.Question[0].Name != "z.example.com." {
						t.Fatalf("got %v", m)
					}
					return
				}
				if err != nil || m.Rcode != c.rcode || m.Id != 0x4711 || !m.Response {
					t.Fatalf("got %v, %v", m, err)
				}
				if n := len(l.up.queries()); n > 0 != (c.rcode == dns.RcodeSuccess) {
					t.Errorf("%d queries left", n)
				}
			})
		}
	}
}

// TestServerPipelines sends many queries on one TCP connection.
func TestServerPipelines(t *testing.T) {
	l := newLab(t, Config{QPS: 1 << 20, Burst: 1 << 20})
	conn, stop := dialServer(t, l.session(t, "s", "*.example.com"), TCP)
	defer stop()
	framed := &dns.Conn{Conn: conn}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	const n = maxConnQueries
	for i := range n + 1 {
		if err := framed.WriteMsg(query(fmt.Sprintf("n%d.example.com", i), dns.TypeA)); err != nil && i < n {
			t.Fatal(err)
		}
	}
	for i := range n {
		m, err := framed.ReadMsg()
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		want(t, m, dns.RcodeSuccess, "203.0.113.10")
	}
	if m, err := framed.ReadMsg(); err == nil {
		t.Errorf("a connection carries more than %d queries: %v", n, m)
	}
}

// TestServerConnectionLimit opens more connections than one session may have.
func TestServerConnectionLimit(t *testing.T) {
	l := newLab(t, Config{})
	s := startServer(t, l.session(t, "s", "a.example.com"))
	wire, err := query("a.example.com", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range maxConns {
		conn, err := net.Dial("tcp", s.streams.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		exchangeOn(t, conn, wire)
	}
	extra, err := net.Dial("tcp", s.streams.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	framed := &dns.Conn{Conn: extra}
	if _, err := framed.Write(wire); err != nil {
		t.Fatal(err)
	}
	_ = extra.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if m, err := framed.ReadMsg(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("one connection too many is served: %v, %v", m, err)
	}
	conns[0].Close()
	_ = extra.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := framed.ReadMsg(); err != nil {
		t.Errorf("a place that became free is not given away: %v", err)
	}
}

// TestServerSlowClients holds that who sends or reads nothing is let go, and does
// not keep the server from closing.
func TestServerSlowClients(t *testing.T) {
	l := newLab(t, Config{QPS: 1 << 20, Burst: 1 << 20, MaxAnswers: 256})
	l.up.say(func(q *dns.Msg, proto string) [][]byte {
		m := reply(q)
		m.Truncated = proto == UDP
		for i := range 250 {
			if proto == TCP {
				m.Answer = append(m.Answer, rr(fmt.Sprintf("$ 60 IN A 203.0.113.%d", i), q.Question[0].Name))
			}
		}
		return pack(m)
	})
	s := startServer(t, l.session(t, "s", "*.example.com"))
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", s.streams.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// Half a length prefix, and silence.
	half := dial()
	if _, err := half.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_ = half.SetReadDeadline(start.Add(10 * time.Second))
	if _, err := half.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("half a message: %v", err)
	}
	if took := time.Since(start); took > 3*messageTimeout {
		t.Errorf("half a message was waited for %v", took)
	}
	// Queries without end and no reading.
	deaf := dial()
	_ = deaf.(*net.TCPConn).SetReadBuffer(1024)
	framed := &dns.Conn{Conn: deaf}
	_ = deaf.SetWriteDeadline(time.Now().Add(time.Second))
	for i := range maxConnQueries {
		if framed.WriteMsg(query(fmt.Sprintf("n%d.example.com", i), dns.TypeA)) != nil {
			break
		}
	}
	start = time.Now()
	s.stop()
	if took := time.Since(start); took > 3*messageTimeout {
		t.Errorf("closing took %v", took)
	}
}

// TestServerFlood holds that more messages than are judged at a time are refused
// and not queued.
func TestServerFlood(t *testing.T) {
	l := newLab(t, Config{QPS: 1 << 20, Burst: 1 << 20, WildcardNames: 1 << 20, WildcardBytes: 1 << 20})
	release := make(chan struct{})
	l.up.say(func(q *dns.Msg, proto string) [][]byte {
		<-release
		return answerAll(q, proto)
	})
	conn, stop := dialServer(t, l.session(t, "s", "*.example.com"), UDP)
	defer stop()
	framed := &dns.Conn{Conn: conn, UDPSize: 4096}
	// Datagrams may be lost on the way; more follow until enough are under way.
	sent, refused := 0, 0
	for end := time.Now().Add(patience); refused == 0 && time.Now().Before(end); {
		for range 64 {
			if err := framed.WriteMsg(query(fmt.Sprintf("n%d.example.com", sent), dns.TypeA)); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		for {
			m, err := framed.ReadMsg()
			if err != nil {
				break
			}
			if m.Rcode == dns.RcodeRefused {
				refused++
			}
		}
	}
	close(release)
	if refused == 0 || refused > sent-maxInFlight {
		t.Errorf("%d of %d refused", refused, sent)
	}
}

func TestServerLifecycle(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "a.example.com")
	if err := NewServer(v).Serve(nil, nil); err == nil {
		t.Error("serving nothing is no error")
	}
	// Closed before it begins: the sockets are closed all the same.
	s := NewServer(v)
	s.Close()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(packets, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := packets.WriteTo([]byte{1}, packets.LocalAddr()); err == nil {
		t.Error("the socket is still open")
	}
	// A socket that dies under it ends Serve with the reason, and the other too.
	s = NewServer(v)
	if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(packets, streams) }()
	wire, err := query("a.example.com", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", streams.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	exchangeOn(t, conn, wire)
	conn.Close()
	packets.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a dead socket is no error")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Serve goes on without its socket")
	}
	if conn, err := net.Dial("tcp", streams.Addr().String()); err == nil {
		conn.Close()
		t.Error("the other socket is still open")
	}
	s.Close()
	// A session's end silences its server.
	running := startServer(t, v)
	v.Close()
	udp, err := net.Dial("udp", running.packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := udp.Write(wire); err != nil {
		t.Fatal(err)
	}
	_ = udp.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := udp.Read(make([]byte, 512)); err == nil {
		t.Errorf("%d octets after the session's end", n)
	}
}

// TestServerSurvivesAPanic: one message must not end the appliance.
func TestServerSurvivesAPanic(t *testing.T) {
	l := newLab(t, Config{})
	v := l.session(t, "s", "a.example.com")
	v.policy = func() *policy.Set { panic("a rule that panics") }
	conn, stop := dialServer(t, v, UDP)
	defer stop()
	wire, err := query("a.example.com", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	if m := exchangeOn(t, conn, wire); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("%v", m)
	}
}
