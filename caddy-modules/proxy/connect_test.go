package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

func failWith(err error) func(context.Context, policy.Target, netip.Addr) (*net.TCPConn, error) {
	return func(context.Context, policy.Target, netip.Addr) (*net.TCPConn, error) { return nil, err }
}

func connectTo(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

func TestConnectDenied(t *testing.T) {
	b := newLab(t, []string{"a.example"})
	conn := b.connectTo(b.http)
	conn.send(connectTo("evil.example:443"))
	resp, body := conn.response("DENIED") // any method but CONNECT, so that the content is read
	if resp.StatusCode != http.StatusForbidden || resp.Header.Get("Postern-Decision") != "denied" || resp.Header.Get("Postern-Reason") != "not_allowed" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	if resp.Header.Get("Proxy-Authenticate") != "" || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v", resp.Header)
	}
	// The phrase alone must be enough: it is all that curl, git and pip show.
	for _, text := range []string{resp.Status, body} {
		if !strings.Contains(text, "evil.example:443") || !strings.Contains(text, `add the rule "evil.example"`) {
			t.Errorf("%q names no cure", text)
		}
	}
	for _, want := range []string{"host: evil.example\n", "port: 443\n", "rule: none\n", "this is policy: do not retry another way"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q lacks %q", body, want)
		}
	}
	// The connection is as good as new.
	conn.send(connectTo("a.example:80"))
	if resp, _ := conn.response(http.MethodConnect); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	if s := b.srv.Stats(); s.Denied != 1 || s.Tunnels != 1 || s.Conns != 1 {
		t.Errorf("%+v", s)
	}
}

func TestConnectDeniedByRule(t *testing.T) {
	b := newLab(t, nil)
	b.allow([]string{"*.example.com"}, []string{"telemetry.example.com"}, nil)
	conn := b.connectTo(b.http)
	conn.send(connectTo("telemetry.example.com:443"))
	_, body := conn.response("DENIED")
	if !strings.Contains(body, "rule: telemetry.example.com (test.list:1)\n") || !strings.Contains(body, "reason: denied\n") {
		t.Errorf("%q", body)
	}
}

// Nothing that a client sends can break a header of the answer.
func TestAnswersAreOneLine(t *testing.T) {
	for _, target := range []string{
		"a\u00e9.example:443", "a\x01:443", "a%0d%0aX:y:443", strings.Repeat("a", 7000) + ":443", "\"<>\":443", "a\x7f:443",
	} {
		b := newLab(t, nil)
		conn := b.connectTo(b.http)
		conn.send(connectTo(target))
		resp, body := conn.response("DENIED")
		if resp.StatusCode < 400 || resp.Header.Get("X") != "" || resp.Header.Get("Postern-Decision") == "" {
			t.Errorf("%.40q: %s %v", target, resp.Status, resp.Header)
		}
		for _, text := range []string{resp.Status, body} {
			for i := range len(text) {
				if c := text[i]; c != '\n' && (c < ' ' || c > '~') {
					t.Errorf("%.40q: byte %#x in %q", target, c, text)
				}
			}
		}
		if len(resp.Status) > maxPhrase+4 {
			t.Errorf("%.40q: a phrase of %d bytes", target, len(resp.Status))
		}
	}
}

func TestConnectFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
		reason string
	}{
		{"refused", syscall.ECONNREFUSED, http.StatusBadGateway, "connection_refused"},
		{"too slow", context.DeadlineExceeded, http.StatusGatewayTimeout, "connect_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newLab(t, []string{"a.example"})
			b.srv.Gate.SetDial(failWith(c.err))
			conn := b.connectTo(b.http)
			conn.send(connectTo("a.example:443"))
			resp, body := conn.response("FAILED")
			if resp.StatusCode != c.status || resp.Header.Get("Postern-Reason") != c.reason || resp.Header.Get("Postern-Decision") != "allowed" {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
			if !strings.Contains(body, "policy is not in the way") {
				t.Errorf("%q", body)
			}
			if records := b.kept(KindDecision); len(records) != 1 || !records[0].Allowed() {
				t.Errorf("%+v", records)
			}
		})
	}
}

func TestTunnelDenyBytes(t *testing.T) {
	hello := buildHello(helloSpec{names: []string{"evil.example"}})
	b := newLab(t, []string{"a.example"})
	conn := b.tunnel("a.example:443")
	conn.send(hello + "more")
	if got := conn.expectEnd(); got != string(accessDenied) {
		t.Errorf("the client got %x, want the alert", got)
	}
	r := b.awaitClose()
	if r.Cause != CauseRefused || r.Hello != HelloMismatch || r.SNI != "evil.example" || r.Allowed() || r.Code() != "sni_mismatch" || r.BytesUp+r.BytesDown != 0 {
		t.Errorf("close %+v", r)
	}
	d := b.kept(KindDecision)
	if len(d) != 1 || d[0].Allowed() || d[0].Code() != "sni_mismatch" || !strings.Contains(d[0].Reason(), "add the flag tcp") {
		t.Errorf("decision %+v: %s", d, d[0].Reason())
	}
	if b.origin.received() != "" {
		t.Error("the origin got bytes")
	}
}

func TestTunnelHelloVerdicts(t *testing.T) {
	good := buildHello(helloSpec{names: []string{"a.example"}})
	evil := buildHello(helloSpec{names: []string{"b.example"}})
	for _, c := range []struct {
		name, rule, target, send string
		mode                     SNIMode
		relayed                  bool
		hello                    HelloVerdict
	}{
		{"the right name", "a.example", "a.example:443", good, SNIEnforce, true, HelloOK},
		{"another allowed name", "*.example.org", "a.example.org:443", buildHello(helloSpec{names: []string{"b.example.org"}}), SNIEnforce, false, HelloMismatch},
		{"no TLS", "a.example", "a.example:443", "SSH-2.0-x\r\n", SNIEnforce, false, HelloNotTLS},
		{"no TLS, flag tcp", "a.example tcp", "a.example:443", "SSH-2.0-x\r\n", SNIEnforce, true, HelloNone},
		{"another name, flag tcp", "a.example tcp", "a.example:443", evil, SNIEnforce, true, HelloNone},
		{"the right name on another port", "a.example 8443", "a.example:8443", good, SNIEnforce, true, HelloOK},
		{"another name on another port", "a.example 8443", "a.example:8443", evil, SNIEnforce, false, HelloMismatch},
		{"no name on another port", "a.example 8443", "a.example:8443", buildHello(helloSpec{}), SNIEnforce, false, HelloNoName},
		{"another message than a hello on another port", "a.example 8443", "a.example:8443", "\x16\x03\x01\x00\x04\x0e\x00\x00\x00" + evil, SNIEnforce, false, HelloNotTLS},
		{"another name on another port, only noted", "a.example 8443", "a.example:8443", evil, SNILog, true, HelloMismatch},
		{"another name on another port, not looked at", "a.example 8443", "a.example:8443", evil, SNIOff, true, HelloNone},
		{"another name on another port, flag tcp", "a.example 8443 tcp", "a.example:8443", evil, SNIEnforce, true, HelloNone},
		{"a name for an address on another port", "93.184.216.34", "93.184.216.34:8443", evil, SNIEnforce, true, HelloNone},
		{"no TLS on another port", "a.example 22", "a.example:22", "SSH-2.0-x\r\n", SNIEnforce, true, HelloNone},
		{"the first byte of TLS on another port", "a.example 22", "a.example:22", "\x16\x04nothing", SNIEnforce, true, HelloNone},
		{"the right name on port 80", "a.example", "a.example:80", good, SNIEnforce, true, HelloOK},
		{"another name on port 80", "a.example", "a.example:80", evil, SNIEnforce, false, HelloMismatch},
		{"no name on port 80", "a.example", "a.example:80", buildHello(helloSpec{}), SNIEnforce, false, HelloNoName},
		{"another name on port 80, not looked at", "a.example", "a.example:80", evil, SNIOff, true, HelloNone},
		{"no HTTP on port 80, flag tcp", "a.example tcp", "a.example:80", "SSH-2.0-x\r\n", SNIEnforce, true, HelloNone},
		{"no HTTP on port 80 of an address", "93.184.216.34", "93.184.216.34:80", "SSH-2.0-x\r\n", SNIEnforce, true, HelloNone},
		{"another name, only noted", "a.example", "a.example:443", evil, SNILog, true, HelloMismatch},
		{"no TLS, only noted", "a.example", "a.example:443", "SSH-2.0-x\r\n", SNILog, true, HelloNotTLS},
		{"another name, not looked at", "a.example", "a.example:443", evil, SNIOff, true, HelloNone},
		{"no name for an address", "93.184.216.34", "93.184.216.34:443", buildHello(helloSpec{}), SNIEnforce, true, HelloOK},
		{"a name for an address", "93.184.216.34", "93.184.216.34:443", good, SNIEnforce, false, HelloMismatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newLab(t, []string{c.rule}, withSNI(c.mode))
			conn := b.tunnel(c.target)
			conn.send(c.send)
			if c.relayed {
				conn.expect(c.send)
				_ = conn.CloseWrite()
			}
			conn.expectEnd()
			r := b.awaitClose()
			if r.Hello != c.hello || r.Allowed() != c.relayed {
				t.Errorf("record %+v", r)
			}
			if s := b.srv.Stats(); (s.Denied == 0) != c.relayed {
				t.Errorf("%+v", s)
			}
			if d := b.kept(KindDecision); len(d) != 1 || d[0].Hello != c.hello || d[0].Allowed() != c.relayed {
				t.Errorf("decisions %+v", d)
			}
			if got := b.origin.received(); (got == c.send) != c.relayed || !c.relayed && got != "" {
				t.Errorf("the origin got %q", got)
			}
		})
	}
}

func TestTunnelHelloDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		mode SNIMode
		ends bool
	}{"enforced": {SNIEnforce, true}, "only noted": {SNILog, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLab(t, []string{"a.example"}, withSNI(c.mode))
			conn := b.tunnel("a.example:443")
			conn.send("\x16\x03\x01") // a beginning is not enough
			if c.ends {
				if got := conn.expectEnd(); got != "" {
					t.Errorf("got %q", got)
				}
			} else {
				conn.expect("\x16\x03\x01")
			}
			if d := b.kept(KindDecision); len(d) != 1 || d[0].Hello != HelloTimeout || d[0].Allowed() == c.ends {
				t.Errorf("decisions %+v", d)
			}
		})
	}
}

// A tunnel that is revoked while its hello is awaited ends for that reason.
func TestTunnelRevokedBeforeHello(t *testing.T) {
	limits := quick
	limits.Hello = time.Minute
	b := newLab(t, []string{"a.example"}, withLimits(limits))
	conn := b.tunnel("a.example:443")
	conn.send("\x16\x03\x01")
	time.Sleep(20 * time.Millisecond)
	b.allow([]string{"b.example"}, nil, nil)
	b.srv.Recheck()
	conn.expectEnd()
	r := b.awaitClose()
	if d := b.kept(KindDecision); len(d) != 1 || !d[0].Allowed() || r.Cause != CauseRevoked || r.Code() != "not_allowed" || r.Hello != HelloNone {
		t.Errorf("decision %+v, close %+v", d, r)
	}
}

// A client that connects to see whether a port is open is no violation.
func TestTunnelThatIsOnlyOpened(t *testing.T) {
	b := newLab(t, []string{"a.example"})
	conn := b.tunnel("a.example:443")
	_ = conn.Close()
	r := b.awaitClose()
	if d := b.kept(KindDecision); len(d) != 1 || !d[0].Allowed() || r.Cause != CauseDone || r.Hello != HelloNone {
		t.Errorf("decision %+v, close %+v", d, r)
	}
}

func TestTunnelHalfClose(t *testing.T) {
	t.Run("the client ends first", func(t *testing.T) {
		b := newLab(t, []string{"a.example 22"}, withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
			all, _ := io.ReadAll(conn)
			_, _ = conn.Write([]byte("got " + string(all)))
		})))
		conn := b.tunnel("a.example:22")
		conn.send("question")
		_ = conn.CloseWrite()
		if got := conn.expectEnd(); got != "got question" {
			t.Errorf("%q", got)
		}
		if r := b.awaitClose(); r.Cause != CauseDone || r.BytesUp != 8 || r.BytesDown != 12 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("the upstream ends first", func(t *testing.T) {
		b := newLab(t, []string{"a.example 22"}, withOrigin(newOrigin(t, func(o *origin, conn net.Conn) {
			_, _ = conn.Write([]byte("banner"))
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, noting{conn, o})
		})))
		conn := b.tunnel("a.example:22")
		if got := conn.expectEnd(); got != "banner" {
			t.Errorf("%q", got)
		}
		conn.send("after the end")
		_ = conn.CloseWrite()
		if r := b.awaitClose(); r.Cause != CauseDone || r.BytesUp != 13 {
			t.Errorf("%+v", r)
		}
		// The kernel has it; the origin reads it in its own time.
		await(t, "the rest at the origin", func() bool { return b.origin.received() == "after the end" })
	})
}

// What was cut off must not look complete.
func TestTunnelReset(t *testing.T) {
	b := newLab(t, []string{"a.example 22"}, withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_, _ = conn.Write([]byte("half"))
		time.Sleep(50 * time.Millisecond)
		_ = conn.(*net.TCPConn).SetLinger(0)
	})))
	conn := b.tunnel("a.example:22")
	conn.send("x")
	conn.expect("half")
	if _, err := conn.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v, want a reset", err)
	}
	if r := b.awaitClose(); r.Cause != CauseError {
		t.Errorf("%+v", r)
	}
}

func TestTunnelBulk(t *testing.T) {
	const size = 24 << 20
	data := make([]byte, size)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	b := newLab(t, []string{"a.example 22"}, withLimits(Limits{}), withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
		_, _ = io.Copy(conn, conn)
		_ = conn.(*net.TCPConn).CloseWrite()
	})))
	conn := b.tunnel("a.example:22")
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		// Odd pieces, with pauses, so that the relay goes in and out of bulk.
		for off := 0; off < size; {
			n := min(off%300_000+1, size-off)
			if _, err := conn.Write(data[off : off+n]); err != nil {
				return
			}
			off += n
			if off%7 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		_ = conn.CloseWrite()
	}()
	sum := sha256.New()
	n, err := io.Copy(sum, conn.in)
	if want := sha256.Sum256(data); err != nil || n != size || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Fatalf("%d of %d bytes came back, %v", n, size, err)
	}
	if r := b.awaitClose(); r.BytesUp != size || r.BytesDown != size || r.Cause != CauseDone {
		t.Errorf("%+v", r)
	}
}

// A client that does not read must not hold a tunnel for ever, though its
// upstream is ready to send.
func TestTunnelStalledReader(t *testing.T) {
	b := newLab(t, []string{"a.example 22"}, withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
		junk := make([]byte, 64<<10)
		for {
			if _, err := conn.Write(junk); err != nil {
				return
			}
		}
	})))
	conn := b.tunnel("a.example:22")
	_ = conn.SetReadBuffer(4 << 10)
	if r := b.awaitClose(); r.Cause != CauseIdle {
		t.Errorf("%+v", r)
	}
}

func TestTunnelTotal(t *testing.T) {
	limits := quick
	limits.Total = 500 * time.Millisecond
	b := newLab(t, []string{"a.example 22"}, withLimits(limits))
	conn := b.tunnel("a.example:22")
	begun := time.Now()
	for {
		if _, err := conn.Write([]byte("x")); err != nil {
			break
		}
		if _, err := conn.in.ReadByte(); err != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if took := time.Since(begun); took < limits.Total/2 || took > 5*time.Second {
		t.Errorf("ended after %v", took)
	}
	if r := b.awaitClose(); r.Cause != CauseTotal {
		t.Errorf("%+v", r)
	}
}
