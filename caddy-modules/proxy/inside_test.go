package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// doors are the ways into a tunnel; what it carries must not depend on them.
var doors = map[Proto]func(*lab, string) *client{
	ProtoConnect:     (*lab).tunnel,
	ProtoSOCKS5:      (*lab).socksTunnel,
	ProtoTransparent: (*lab).transparentTo,
}

// socksTunnel opens a SOCKS tunnel to port 80 or 22 of a name.
func (b *lab) socksTunnel(target string) *client {
	b.t.Helper()
	host, port, _ := net.SplitHostPort(target)
	numbers := map[string]uint16{"80": 80, "22": 22}
	c := b.connectTo(b.socks)
	c.send(noAuth + socksRequest(host, numbers[port]))
	c.expect("\x05\x00" + string(socksReply(replySucceeded)))
	return c
}

func TestInsideIsJudged(t *testing.T) {
	const host = "Host: a.example\r\n\r\n"
	for _, c := range []struct {
		name, send string
		status     int
		reason     string // of a refusal
		line       string // the request line that the origin gets
	}{
		{"origin-form", "GET /p?q=%7e HTTP/1.1\r\n" + host, 200, "", "GET /p?q=%7e HTTP/1.1"},
		{"two slashes are a path", "GET //b.example/x HTTP/1.1\r\n" + host, 200, "", "GET //b.example/x HTTP/1.1"},
		{"the same host spelt otherwise", "GET / HTTP/1.1\r\nHost: A.Example.:80\r\n\r\n", 200, "", "GET / HTTP/1.1"},
		{"asterisk-form", "OPTIONS * HTTP/1.1\r\n" + host, 200, "", "OPTIONS * HTTP/1.1"},
		{"absolute-form", "GET http://a.example:80/p HTTP/1.1\r\n" + host, 200, "", "GET /p HTTP/1.1"},
		{"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", 200, "", "GET / HTTP/1.1"},
		{"line ends in LF", "GET / HTTP/1.1\nHost: a.example\n\n", 200, "", "GET / HTTP/1.1"},

		{"foreign Host", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "host_mismatch", ""},
		{"another allowed Host", "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", 403, "host_mismatch", ""},
		{"a name below", "GET / HTTP/1.1\r\nHost: x.a.example\r\n\r\n", 403, "host_mismatch", ""},
		{"another port", "GET / HTTP/1.1\r\nHost: a.example:443\r\n\r\n", 403, "host_mismatch", ""},
		{"empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 403, "host_mismatch", ""},
		{"an address", "GET / HTTP/1.1\r\nHost: 93.184.216.34\r\n\r\n", 403, "host_mismatch", ""},
		{"foreign Host in HTTP/1.0", "GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n", 403, "host_mismatch", ""},
		{"foreign absolute-form", "GET http://b.example/ HTTP/1.1\r\n" + host, 403, "host_mismatch", ""},
		{"absolute-form of another port", "GET http://a.example:8080/ HTTP/1.1\r\n" + host, 403, "host_mismatch", ""},
		{"absolute-form with foreign Host", "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n", 403, "host_mismatch", ""},
		{"foreign Host with content", "POST / HTTP/1.1\r\nContent-Length: 5\r\nHost: b.example\r\n\r\nhello", 403, "host_mismatch", ""},
		{"SSH", "SSH-2.0-x\r\n", 403, "not_http", ""},
		{"a byte that is no text", "\x00", 403, "not_http", ""},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403, "not_http", ""},
		{"HTTP/0.9", "GET /\r\n", 403, "not_http", ""},
		{"a word that does not end", strings.Repeat("A", maxMethod+1), 403, "not_http", ""},

		{"two Hosts", "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n", 400, "malformed", ""},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", 400, "malformed", ""},
		{"user information in Host", "GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n", 400, "malformed", ""},
		{"CONNECT", "CONNECT b.example:443 HTTP/1.1\r\n" + host, 400, "malformed", ""},
		{"https", "GET https://a.example/ HTTP/1.1\r\n" + host, 400, "malformed", ""},
		{"fragment", "GET /#x HTTP/1.1\r\n" + host, 400, "malformed", ""},
		{"neither form", "GET x HTTP/1.1\r\n" + host, 400, "malformed", ""},
		{"asterisk-form of GET", "GET * HTTP/1.1\r\n" + host, 400, "malformed", ""},
	} {
		for proto, open := range doors {
			t.Run(c.name+" by "+string(proto), func(t *testing.T) {
				t.Parallel()
				b := newLab(t, []string{"a.example", "b.example"}, withOrigin(newOrigin(t, answering(okAnswer))))
				conn := open(b, "a.example:80")
				conn.send(c.send)
				resp, body := conn.response(methodOf(c.send))
				if resp.StatusCode != c.status || resp.Header.Get(reasonField) != c.reason {
					t.Fatalf("%s %v %s", resp.Status, resp.Header, body)
				}
				got := b.origin.received()
				if c.status == 200 {
					if !strings.HasPrefix(got, c.line+"\r\nHost: a.example\r\n") {
						t.Errorf("the origin got %q", got)
					}
					_ = conn.CloseWrite()
				} else if got != "" {
					t.Errorf("refused, yet the origin got %q", got)
				}
				conn.expectEnd() // of a refusal by itself
				r := b.awaitClose()
				d := b.kept(KindDecision)
				if len(d) != 1 || d[0].Proto != proto || r.Proto != proto || d[0].Target.String() != "a.example:80" || d[0].Addr != r.Addr {
					t.Fatalf("decision %+v, close %+v", d, r)
				}
				if c.status == 403 {
					if d[0].Allowed() || d[0].Code() != c.reason || r.Cause != CauseRefused || !strings.Contains(resp.Status, "add the flag tcp") || !strings.Contains(resp.Status, "must carry HTTP for a.example") {
						t.Errorf("decision %+v, close %+v, %s", d[0], r, resp.Status)
					}
				} else if !d[0].Allowed() {
					t.Errorf("%+v", d[0])
				}
				if s := b.srv.Stats(); (s.Denied == 1) != (c.status == 403) || (s.Malformed == 1) != (c.status == 400) {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// The second request is judged like the first, and those before it were answered.
func TestInsideKeepsConnections(t *testing.T) {
	b := newLab(t, []string{"a.example", "b.example"}, withOrigin(newOrigin(t, answering(okAnswer))))
	conn := b.tunnel("a.example:80")
	for range 3 {
		conn.send(get("/", "a.example"))
		if resp, body := conn.response("GET"); resp.StatusCode != 200 || body != "ok" {
			t.Fatalf("%s %q", resp.Status, body)
		}
	}
	conn.send(get("/last", "a.example") + get("/front", "b.example") + get("/never", "a.example"))
	for _, want := range []int{200, 403} {
		if resp, _ := conn.response("GET"); resp.StatusCode != want {
			t.Errorf("%s, want %d", resp.Status, want)
		}
	}
	if rest := conn.expectEnd(); rest != "" {
		t.Errorf("%q after the refusal", rest)
	}
	if got := b.origin.received(); strings.Contains(got, "front") || strings.Contains(got, "never") || !strings.Contains(got, "last") || b.origin.conns != 1 {
		t.Errorf("%d connections, %q", b.origin.conns, got)
	}
	await(t, "the records", func() bool { return len(b.kept(KindClose)) == 5 })
	if d := b.kept(KindDecision); len(d) != 5 || d[4].Allowed() || d[4].SNI != "b.example" {
		t.Errorf("%+v", d)
	}
	if s := b.srv.Stats(); s.Requests != 4 || s.Tunnels != 1 || s.Denied != 1 {
		t.Errorf("%+v", s)
	}
}

// An upstream that closes after each answer ends the tunnel of nobody.
func TestInsideConnectsAgain(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, scripted("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", nil))))
	conn := b.socksTunnel("a.example:80")
	for range 2 {
		conn.send(get("/", "a.example"))
		if resp, body := conn.response("GET"); resp.StatusCode != 200 || body != "ok" {
			t.Fatalf("%s %q", resp.Status, body)
		}
	}
	b.allow([]string{"b.example"}, nil, nil)
	conn.send(get("/", "a.example"))
	if resp, _ := conn.response("GET"); resp.StatusCode != 403 || resp.Header.Get(reasonField) != "not_allowed" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
}

func TestInsideStreams(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		w := bufio.NewWriter(conn)
		for b := make([]byte, 1); ; {
			if _, err := req.Body.Read(b); err != nil {
				break
			}
			_, _ = fmt.Fprintf(w, "1\r\n%s\r\n", b)
			_ = w.Flush()
		}
		_, _ = io.WriteString(conn, "0\r\n\r\n")
	})))
	conn := b.tunnel("a.example:80")
	conn.send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n")
	resp, err := http.ReadResponse(conn.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range "stream" {
		conn.send("1\r\n" + string(c) + "\r\n")
		got := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, got); err != nil || got[0] != byte(c) {
			t.Fatalf("%q %v, want %q", got, err, c)
		}
	}
	conn.send("0\r\n\r\n")
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
}

func TestInsideWebSocket(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, scripted(switched+"early", func(c net.Conn) {
		_, _ = io.Copy(c, c)
		_ = c.(*net.TCPConn).CloseWrite()
	}))))
	conn := b.tunnel("a.example:80")
	conn.send("GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n")
	resp, err := http.ReadResponse(conn.in, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	conn.expect("early")
	conn.send("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n") // frames now, whatever they look like
	conn.expect("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	if s := b.srv.Stats(); s.OpenTunnels != 1 || s.Tunnels != 1 {
		t.Errorf("%+v", s)
	}
	_ = conn.CloseWrite()
	conn.expectEnd()
	if r := b.awaitClose(); r.Proto != ProtoConnect || r.Cause != CauseDone {
		t.Errorf("%+v", r)
	}
}

// What real clients of a SOCKS proxy do with an http:// address.
func TestInsideGoClient(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, answering(okAnswer))))
	transport := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse("socks5h://" + b.socks) }}
	defer transport.CloseIdleConnections()
	for range 3 {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://a.example/x", strings.NewReader("content"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != "ok" {
			t.Errorf("%q %v", body, err)
		}
	}
	if b.origin.conns != 1 {
		t.Errorf("%d connections", b.origin.conns)
	}
}

func TestInsideRevoked(t *testing.T) {
	for name, asks := range map[string]int{"before a request": 0, "between requests": 1} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, answering(okAnswer))))
			conn := b.tunnel("a.example:80")
			for range asks {
				conn.send(get("/", "a.example"))
				conn.response("GET")
			}
			time.Sleep(20 * time.Millisecond) // until it waits for the next one
			b.allow([]string{"b.example"}, nil, nil)
			b.srv.Recheck()
			if _, err := conn.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client sees %v, want a reset", err)
			}
			r := b.awaitClose()
			if want := []Cause{CauseRevoked, CauseDone}[asks]; r.Cause != want {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestInsideEnds(t *testing.T) {
	for _, c := range []struct {
		name, send string
		cause      Cause
		want       string
	}{
		{"only opened", "", CauseDone, ""},
		{"an end in the head", "GET / HTT", CauseError, "400"},
		{"no byte in time", "", CauseIdle, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits := quick
			limits.KeepAlive = 200 * time.Millisecond
			b := newLab(t, []string{"a.example"}, withLimits(limits))
			conn := b.tunnel("a.example:80")
			conn.send(c.send)
			if c.cause != CauseIdle {
				_ = conn.CloseWrite()
			}
			got := conn.expectEnd()
			if _, status, _ := strings.Cut(got, " "); !strings.HasPrefix(status, c.want) || c.want == "" && got != "" {
				t.Errorf("%q", got)
			}
			r := b.awaitClose()
			if d := b.kept(KindDecision); len(d) != 1 || !d[0].Allowed() || r.Cause != c.cause {
				t.Errorf("decision %+v, close %+v", d, r)
			}
		})
	}
}

// A server that speaks first is not kept waiting, and what its client says then
// is still judged.
func TestTunnelServerFirst(t *testing.T) {
	banner := func(o *origin, conn net.Conn) {
		_, _ = io.WriteString(conn, "220 banner\r\n")
		echo(o, conn)
	}
	good := buildHello(helloSpec{names: []string{"a.example"}})
	evil := buildHello(helloSpec{names: []string{"b.example"}})
	for _, c := range []struct {
		name, send string
		relayed    bool
	}{{"SMTP", "EHLO x\r\n", true}, {"TLS for the host", good, true}, {"TLS for another", evil, false}} {
		for proto, open := range doors {
			t.Run(c.name+" by "+string(proto), func(t *testing.T) {
				t.Parallel()
				b := newLab(t, []string{"a.example 22"}, withOrigin(newOrigin(t, banner)))
				conn := open(b, "a.example:22")
				conn.expect("220 banner\r\n") // before the client has said anything
				for piece := range slices.Chunk([]byte(c.send), 40) {
					conn.send(string(piece))
				}
				if c.relayed {
					conn.expect(c.send)
					_ = conn.CloseWrite()
					if rest := conn.expectEnd(); rest != "" {
						t.Errorf("%q", rest)
					}
				} else if rest := conn.expectEnd(); rest != string(accessDenied) {
					t.Errorf("%q", rest)
				}
				r := b.awaitClose()
				if d := b.kept(KindDecision); len(d) != 1 || d[0].Allowed() != c.relayed || r.Allowed() != c.relayed || r.BytesDown < 12 {
					t.Errorf("decision %+v, close %+v", d, r)
				}
				if got := b.origin.received(); !c.relayed && got != "" {
					t.Errorf("the origin got %q", got)
				}
			})
		}
	}
}

// A hello that is begun on another port must be finished in time, and one byte of
// it is held back as well.
func TestTunnelHelloDeadlineOnOtherPort(t *testing.T) {
	for _, begin := range []string{"\x16", "\x16\x03\x01"} {
		b := newLab(t, []string{"a.example 22"})
		conn := b.tunnel("a.example:22")
		time.Sleep(quick.Hello + 50*time.Millisecond) // saying nothing is no offence there
		conn.send(begin)
		conn.expectEnd()
		if r := b.awaitClose(); r.Hello != HelloTimeout || r.Cause != CauseRefused || b.origin.received() != "" {
			t.Errorf("%q: %+v, the origin got %q", begin, r, b.origin.received())
		}
	}
}

// A client that does not read cannot keep its refusal from ending the tunnel.
func TestTunnelRefusedWhileFlooded(t *testing.T) {
	b := newLab(t, []string{"a.example 22"}, withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
		junk := make([]byte, 64<<10)
		for {
			if _, err := conn.Write(junk); err != nil {
				return
			}
		}
	})), withLimits(Limits{}))
	conn := b.tunnel("a.example:22")
	time.Sleep(100 * time.Millisecond) // until nothing moves any more
	conn.send(buildHello(helloSpec{names: []string{"b.example"}}))
	if r := b.awaitClose(); r.Cause != CauseRefused || r.Hello != HelloMismatch {
		t.Errorf("%+v", r)
	}
}

// Whatever the reader of heads takes must not be stopped on the way to it.
func FuzzMayBeHTTP(f *testing.F) {
	for _, seed := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST http://a/ HTTP/1.0\n\n", "PRI * HTTP/2.0\r\n\r\n", "SSH-2.0-x\r\n", "\x16\x03\x01", "A B C HTTP/1.1\r\n"} {
		f.Add([]byte(seed))
	}
	limits := Limits{}.withDefaults()
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := scanHead(b, &limits)
		var r request
		if err != nil || n == 0 || r.parseHead(b[:n]) != nil || len(r.method) > maxMethod {
			return
		}
		for end := range n + 1 {
			if !mayBeHTTP(b[:end]) {
				t.Fatalf("%q is taken for something else after %d bytes", b[:n], end)
			}
		}
	})
}
