package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postern/caddy-modules/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// public is what the stub resolver says of a name it was told nothing about.
var public = netip.MustParseAddr("93.184.216.34")

// lab is a Server with both listeners on loopback, a stub resolver, and an
// origin to which every vetted address leads.
type lab struct {
	t      testing.TB
	srv    *Server
	set    atomic.Pointer[policy.Set]
	http   string
	socks  string
	origin *origin

	mu      sync.Mutex
	answers map[string][][]netip.Addr // by name: one answer a lookup, the last one stays
	lookups []string
	dials   []netip.Addr
	records []Record
	fakes   map[netip.Addr]string     // what NameOf knows
	meant   map[string]netip.AddrPort // by listener of ServeTransparent
}

// quick are limits short enough to wait for.
var quick = Limits{
	Header: 600 * time.Millisecond, KeepAlive: 2 * time.Second, Hello: 600 * time.Millisecond,
	Dial: 2 * time.Second, Idle: 800 * time.Millisecond, Total: 20 * time.Second,
}

type labOption func(*lab)

func withLimits(l Limits) labOption  { return func(b *lab) { b.srv.Gate.Limits = l } }
func withSNI(m SNIMode) labOption    { return func(b *lab) { b.srv.SNI = m } }
func withOrigin(o *origin) labOption { return func(b *lab) { b.origin = o } }

func newLab(tb testing.TB, allow []string, options ...labOption) *lab {
	tb.Helper()
	b := &lab{t: tb, answers: map[string][][]netip.Addr{}, fakes: map[netip.Addr]string{}, meant: map[string]netip.AddrPort{}}
	b.srv = &Server{Gate: &Gate{Policy: b.set.Load, Resolver: b, Record: b.record, Limits: quick}, NameOf: b.fakeName, localAddr: b.meantBy}
	for _, o := range options {
		o(b)
	}
	if b.origin == nil {
		b.origin = newOrigin(tb, echo)
	}
	b.srv.Gate.SetDial(b.dial)
	b.http = b.listen(b.srv.ServeHTTP)
	b.socks = b.listen(b.srv.ServeSOCKS)
	b.allow(allow, nil, nil)
	tb.Cleanup(func() {
		if err := b.srv.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

func (b *lab) listen(serve func(net.Listener) error) string {
	b.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serve(ln) }()
	b.t.Cleanup(func() {
		_ = ln.Close()
		if err := <-done; err != nil {
			b.t.Errorf("serve: %v", err)
		}
	})
	return ln.Addr().String()
}

func rules(tb testing.TB, lines ...string) []policy.Rule {
	tb.Helper()
	list, err := policy.ParseList(strings.NewReader(strings.Join(lines, "\n")), "test.list")
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// allow puts another policy in force, without a recheck.
func (b *lab) allow(allow, deny []string, own policy.OwnFunc) {
	b.t.Helper()
	set, err := policy.Compile(policy.Lists{Allow: rules(b.t, allow...), Deny: rules(b.t, deny...)}, own)
	if err != nil {
		b.t.Fatal(err)
	}
	b.set.Store(set)
}

func (b *lab) Resolve(_ context.Context, name string) ([]netip.Addr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookups = append(b.lookups, name)
	answers := b.answers[name]
	switch len(answers) {
	case 0:
		return []netip.Addr{public}, nil
	case 1:
	default:
		b.answers[name] = answers[1:]
	}
	return answers[0], nil
}

func (b *lab) dial(ctx context.Context, _ policy.Target, a netip.Addr) (*net.TCPConn, error) {
	b.mu.Lock()
	b.dials = append(b.dials, a)
	b.mu.Unlock()
	var d net.Dialer
	return d.DialTCP(ctx, "tcp", netip.AddrPort{}, b.origin.addr)
}

func (b *lab) record(r Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, r)
}

// touched says what reached the resolver and the dialler.
func (b *lab) touched() (lookups []string, dials []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.lookups...), append([]netip.Addr(nil), b.dials...)
}

func (b *lab) kept(kind Kind) []Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Record
	for _, r := range b.records {
		if r.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}

// await polls until the condition holds; what it waits for is done by other
// goroutines of this process.
func await(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			tb.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// awaitClose gives the one record of a close.
func (b *lab) awaitClose() Record {
	b.t.Helper()
	await(b.t, "a close record", func() bool { return len(b.kept(KindClose)) > 0 })
	return b.kept(KindClose)[0]
}

// client is a client connection that fails the test instead of hanging.
type client struct {
	*net.TCPConn
	t  testing.TB
	in *bufio.Reader
}

func (b *lab) connectTo(addr string) *client {
	b.t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	b.t.Cleanup(func() { _ = conn.Close() })
	return &client{TCPConn: conn.(*net.TCPConn), t: b.t, in: bufio.NewReader(conn)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// expect reads exactly text.
func (c *client) expect(text string) {
	c.t.Helper()
	got := make([]byte, len(text))
	n, err := io.ReadFull(c.in, got)
	if err != nil || string(got) != text {
		c.t.Fatalf("got %q (%v), want %q", got[:n], err, text)
	}
}

// expectEnd reads until the connection ends and gives what came before.
func (c *client) expectEnd() string {
	c.t.Helper()
	rest, err := io.ReadAll(c.in)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		c.t.Fatalf("still open after %q", rest)
	}
	return string(rest)
}

// response reads one response with its content.
func (c *client) response(method string) (*http.Response, string) {
	c.t.Helper()
	resp, body, err := c.tryResponse(method)
	if err != nil {
		c.t.Fatalf("read response: %v", err)
	}
	return resp, body
}

func (c *client) tryResponse(method string) (*http.Response, string, error) {
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	if method == http.MethodConnect && resp.StatusCode == http.StatusOK {
		return resp, "", nil
	}
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// tunnel opens a CONNECT tunnel and fails the test if it is refused.
func (b *lab) tunnel(target string) *client {
	b.t.Helper()
	c := b.connectTo(b.http)
	c.send("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n")
	if resp, body := c.response(http.MethodConnect); resp.StatusCode != http.StatusOK {
		b.t.Fatalf("CONNECT %s: %s %s", target, resp.Status, body)
	}
	return c
}

// origin accepts on loopback and remembers everything that it was sent.
type origin struct {
	addr netip.AddrPort

	mu    sync.Mutex
	got   bytes.Buffer
	conns int
}

func newOrigin(tb testing.TB, handle func(*origin, net.Conn)) *origin {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	o := &origin{addr: ln.Addr().(*net.TCPAddr).AddrPort()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]struct{}{}
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns++
			o.mu.Unlock()
			mu.Lock()
			open[conn] = struct{}{}
			mu.Unlock()
			wg.Go(func() {
				handle(o, conn)
				_ = conn.Close()
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return o
}

func (o *origin) note(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got.Write(b)
}

func (o *origin) received() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.got.String()
}

// noting is a reader that notes what is read.
type noting struct {
	net.Conn
	o *origin
}

func (n noting) Read(b []byte) (int, error) {
	m, err := n.Conn.Read(b)
	n.o.note(b[:m])
	return m, err
}

// echo sends back what it gets, and ends when the client has.
func echo(o *origin, conn net.Conn) {
	_, _ = io.Copy(conn, noting{conn, o})
	_ = conn.(*net.TCPConn).CloseWrite()
}

// answering is an HTTP origin that answers every request with the given bytes,
// once it has read it. It answers Expect: 100-continue first.
func answering(answer string) func(*origin, net.Conn) {
	return func(o *origin, conn net.Conn) {
		in := bufio.NewReader(noting{conn, o})
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if req.Header.Get("Expect") != "" {
				_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
		}
	}
}

// scripted is an origin that writes an answer after the first byte and then does
// what the rest says.
func scripted(answer string, then func(net.Conn)) func(*origin, net.Conn) {
	return func(o *origin, conn net.Conn) {
		b := make([]byte, 64<<10)
		n, err := conn.Read(b)
		if err != nil {
			return
		}
		o.note(b[:n])
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
		if then != nil {
			then(conn)
		}
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func get(url, host string, fields ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", url, host)
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	return b.String() + "\r\n"
}
