package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

// Close ends everything at once, in whatever state it is, and leaves no
// goroutine behind (TestMain looks).
func TestServerClose(t *testing.T) {
	b := newLab(t, []string{"a.example", "slow.example"}, withLimits(Limits{}))
	inner := b.srv.Gate.dial
	dialling := make(chan struct{})
	b.srv.Gate.SetDial(func(ctx context.Context, to policy.Target, a netip.Addr) (*net.TCPConn, error) {
		if to.Host().Name() == "slow.example" {
			close(dialling)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return inner(ctx, to, a)
	})
	conns := []*client{
		b.connectTo(b.http), b.connectTo(b.socks), // silent
		b.tunnel("a.example:80"),
		b.tunnel("a.example:443"), // its hello is awaited
	}
	half := b.connectTo(b.http)
	half.send("GET http://a.example/ HT")
	dial := b.connectTo(b.http)
	dial.send(connectTo("slow.example:80"))
	<-dialling
	request := b.connectTo(b.http)
	request.send("POST " + aURL + " HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
	conns = append(conns, half, dial, request)
	await(t, "all of them", func() bool { return b.srv.Stats().OpenConns == int64(len(conns)) && len(b.kept(KindDecision)) >= 1 })

	begun := time.Now()
	if err := b.srv.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if s := b.srv.Stats(); s.OpenConns != 0 || s.OpenTunnels != 0 {
		t.Errorf("%+v", s)
	}
	for _, c := range conns {
		_, _ = io.ReadAll(c.in)
	}
	for _, r := range b.kept(KindClose) {
		if r.Cause != CauseClosed {
			t.Errorf("%+v", r)
		}
	}
	if _, err := net.Dial("tcp", b.http); err == nil {
		t.Error("the listener still accepts")
	}
	// Closed for good.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.srv.ServeHTTP(ln); err != nil {
		t.Error(err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the late listener: %v", err)
	}
	b.srv.Recheck()
	if err := b.srv.Close(); err != nil {
		t.Error(err)
	}
}

func TestServerClosedBeforeUse(t *testing.T) {
	s := &Server{Gate: &Gate{}}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s.Stats() != (Stats{}) {
		t.Errorf("%+v", s.Stats())
	}
}

// flaky gives errors before connections.
type flaky struct {
	net.Listener
	errs chan error
}

func (f *flaky) Accept() (net.Conn, error) {
	select {
	case err := <-f.errs:
		return nil, err
	default:
		return f.Listener.Accept()
	}
}

func TestServerAcceptErrors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{ln, make(chan error, 4)}
	f.errs <- &net.OpError{Err: syscall.EMFILE}
	f.errs <- &net.OpError{Err: syscall.ECONNABORTED}
	b := newLab(t, nil)
	done := goResult(func() error { return b.srv.ServeHTTP(f) })
	conn := b.connectTo(ln.Addr().String())
	conn.send(connectTo("evil.example:80"))
	if resp, _ := conn.response("DENIED"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
	// The error is met once the pending Accept has returned.
	broken := errors.New("broken")
	f.errs <- broken
	other := b.connectTo(ln.Addr().String())
	defer func() { _ = other.Close() }()
	if err := <-done; !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestServerRecheck(t *testing.T) {
	b := newLab(t, []string{"a.example 22", "c.example 22 80", "93.184.216.34"}, withOrigin(newOrigin(t, echo)))
	stays, goes, literal := b.tunnel("a.example:22"), b.tunnel("c.example:22"), b.tunnel("93.184.216.34:80")
	b.srv.Recheck() // the same policy: nothing happens
	for _, c := range []*client{stays, goes, literal} {
		c.send("x")
		c.expect("x")
	}
	// The new policy alone cuts nothing; it is asked for new requests only.
	b.allow([]string{"a.example 22"}, nil, nil)
	goes.send("y")
	goes.expect("y")
	denied := b.connectTo(b.http)
	denied.send(connectTo("c.example:80"))
	if resp, _ := denied.response("DENIED"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
	b.srv.Recheck()
	for _, c := range []*client{goes, literal} {
		if _, err := c.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a revoked tunnel sees %v, want a reset", err)
		}
	}
	stays.send("z")
	stays.expect("z")
	await(t, "the records", func() bool { return len(b.kept(KindClose)) == 2 })
	for _, r := range b.kept(KindClose) {
		if r.Cause != CauseRevoked || r.Allowed() || r.Code() != "not_allowed" {
			t.Errorf("%+v", r)
		}
	}
}

// An address that a new policy denies ends the tunnel of a name that it allows.
func TestServerRecheckByAddress(t *testing.T) {
	b := newLab(t, []string{"a.example"})
	c := b.tunnel("a.example:80")
	b.allow([]string{"a.example"}, []string{"93.184.216.0/24"}, nil)
	b.srv.Recheck()
	if _, err := c.in.ReadByte(); err == nil {
		t.Error("still open")
	}
}

// An idle connection kept for plain requests is closed, the client's is not.
func TestServerRecheckIdle(t *testing.T) {
	ended := make(chan struct{})
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, func(o *origin, c net.Conn) {
		answering(okAnswer)(o, c)
		close(ended)
	})))
	conn := b.connectTo(b.http)
	conn.send(get(aURL, "a"))
	conn.response("GET")
	b.allow([]string{"b.example"}, nil, nil)
	b.srv.Recheck()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Fatal("the idle connection is still open")
	}
	conn.send(get(aURL, "a"))
	if resp, _ := conn.response("GET"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
}

// Without a recheck as well: a kept connection serves no request that the policy
// of the moment refuses.
func TestServerKeptConnectionIsJudged(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, answering(okAnswer))))
	conn := b.connectTo(b.http)
	conn.send(get(aURL, "a"))
	conn.response("GET")
	b.allow([]string{"a.example"}, []string{"93.184.216.34"}, nil)
	conn.send(get(aURL, "a"))
	if resp, _ := conn.response("GET"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the address is denied now: %s", resp.Status)
	}
}

func TestServerRecheckInFlight(t *testing.T) {
	silent := func(o *origin, c net.Conn) { _, _ = io.Copy(io.Discard, noting{c, o}) }
	t.Run("before the answer", func(t *testing.T) {
		b := newLab(t, []string{"a.example"}, withLimits(Limits{}), withOrigin(newOrigin(t, silent)))
		conn := b.connectTo(b.http)
		conn.send(get(aURL, "a"))
		await(t, "the request", func() bool { return b.origin.received() != "" })
		b.allow([]string{"b.example"}, nil, nil)
		b.srv.Recheck()
		if resp, _ := conn.response("GET"); resp.StatusCode != http.StatusForbidden || resp.Header.Get(reasonField) != "not_allowed" {
			t.Errorf("%s", resp.Status)
		}
		if r := b.awaitClose(); r.Cause != CauseRevoked {
			t.Errorf("%+v", r)
		}
	})
	t.Run("inside the answer", func(t *testing.T) {
		b := newLab(t, []string{"a.example"}, withLimits(Limits{}), withOrigin(newOrigin(t, scripted("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", func(c net.Conn) { silent(&origin{}, c) }))))
		conn := b.connectTo(b.http)
		conn.send(get(aURL, "a"))
		if _, err := conn.in.Peek(len("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")); err != nil {
			t.Fatal(err)
		}
		b.allow([]string{"b.example"}, nil, nil)
		b.srv.Recheck()
		if resp, body, err := conn.tryResponse("GET"); err == nil {
			t.Errorf("%s %q looks complete", resp.Status, body)
		}
		if r := b.awaitClose(); r.Cause != CauseRevoked {
			t.Errorf("%+v", r)
		}
	})
}

// A policy that changes between the dial and the tunnel is not missed, though
// Recheck ran before the tunnel was there to be found.
func TestServerRecheckRace(t *testing.T) {
	b := newLab(t, []string{"a.example"})
	inner := b.srv.Gate.dial
	b.srv.Gate.SetDial(func(ctx context.Context, to policy.Target, a netip.Addr) (*net.TCPConn, error) {
		conn, err := inner(ctx, to, a)
		b.allow([]string{"b.example"}, nil, nil)
		b.srv.Recheck()
		return conn, err
	})
	conn := b.connectTo(b.http)
	conn.send(connectTo("a.example:80"))
	if resp, _ := conn.response("DENIED"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
}

func TestServerLocal(t *testing.T) {
	var dials atomic.Int64
	var serving []net.Conn
	local := func(to policy.Target) (func(context.Context) (net.Conn, error), bool) {
		if to.String() != "git.internal:80" {
			return nil, false
		}
		return func(context.Context) (net.Conn, error) {
			if dials.Add(1) > 3 {
				return nil, errors.New("the gateway is gone")
			}
			near, far := net.Pipe()
			serving = append(serving, far)
			go func() {
				defer func() { _ = far.Close() }()
				req, err := http.ReadRequest(bufio.NewReader(far))
				if err != nil {
					return
				}
				n, _ := io.Copy(io.Discard, req.Body)
				_, _ = fmt.Fprintf(far, "HTTP/1.1 200 OK\r\nPostern-Reason: gateway\r\nContent-Length: 8\r\n\r\n%8d", n)
			}()
			return near, nil
		}, true
	}
	b := newLab(t, nil, func(b *lab) { b.srv.Local = local })
	b.set.Store(policy.Off()) // the gateway is no egress: it answers with the network off
	conn := b.connectTo(b.http)
	for i, size := range []int{5, 3 << 20} {
		conn.send(fmt.Sprintf("POST http://git.internal/x HTTP/1.1\r\nHost: git.internal\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("a", size)))
		resp, body := conn.response("POST")
		if resp.StatusCode != 200 || strings.TrimSpace(body) != fmt.Sprint(size) || resp.Header.Get("Postern-Reason") != "gateway" {
			t.Fatalf("request %d: %s %q", i, resp.Status, body)
		}
	}
	b.srv.Recheck()
	tunnel := b.tunnel("git.internal:80")
	tunnel.send("GET / HTTP/1.1\r\nHost: git.internal\r\n\r\n")
	if got := tunnel.expectEnd(); !strings.HasSuffix(got, "       0") {
		t.Errorf("%q", got)
	}
	conn.send(get("http://git.internal/", "x"))
	if resp, _ := conn.response("GET"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("%s", resp.Status)
	}
	conn.send(get("http://git.internal:81/", "x"))
	if resp, _ := conn.response("GET"); resp.StatusCode != http.StatusForbidden || resp.Header.Get(reasonField) != "network_off" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	for _, r := range b.kept(KindDecision) {
		if local := r.Target.String() == "git.internal:80"; r.Local != local || r.Allowed() != local {
			t.Errorf("%+v: %s", r, r.Reason())
		}
	}
	if len(serving) != 3 {
		t.Errorf("%d connections", len(serving))
	}
}

func TestServerOnUnixSocket(t *testing.T) {
	b := newLab(t, []string{"a.example 22"})
	path := filepath.Join(t.TempDir(), "proxy.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := goResult(func() error { return b.srv.ServeHTTP(ln) })
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, connectTo("a.example:22")+"ping")
	in := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "ping" {
		t.Errorf("%q %v", got, err)
	}
	_ = conn.Close()
	if r := b.awaitClose(); r.Client == "" {
		t.Errorf("%+v", r)
	}
	_ = ln.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Two servers share nothing: what one session may reach the other may not.
func TestServersAreApart(t *testing.T) {
	one, two := newLab(t, []string{"a.example"}), newLab(t, []string{"b.example"})
	for _, c := range []struct {
		lab    *lab
		target string
		want   int
	}{{one, "a.example:80", 200}, {two, "a.example:80", 403}, {one, "b.example:80", 403}, {two, "b.example:80", 200}} {
		conn := c.lab.connectTo(c.lab.http)
		conn.send(connectTo(c.target))
		method := "DENIED"
		if c.want == 200 {
			method = "CONNECT"
		}
		if resp, _ := conn.response(method); resp.StatusCode != c.want {
			t.Errorf("%s: %s", c.target, resp.Status)
		}
	}
	if err := one.srv.Close(); err != nil {
		t.Fatal(err)
	}
	two.tunnel("b.example:80")
}

// Records must be safe to give to whoever shows them.
func TestRecordsName(t *testing.T) {
	b := newLab(t, []string{"a.example"})
	conn := b.connectTo(b.http)
	conn.send("CONNECT a.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n" + buildHello(helloSpec{names: []string{"x\r\ny"}}))
	conn.response("CONNECT")
	conn.expectEnd()
	r := b.awaitClose()
	if r.Target.String() != "a.example:443" || strings.ContainsAny(r.Reason(), "\r\n") || r.SNI != "x\r\ny" {
		t.Errorf("%+v: %q", r, r.Reason())
	}
	if r.Client != conn.LocalAddr().String() || r.Duration <= 0 || r.Time.IsZero() || !r.Addr.IsValid() {
		t.Errorf("%+v", r)
	}
}
