package proxy

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const aURL = "http://a.example/"

func TestForwardKeepAlive(t *testing.T) {
	b := newLab(t, []string{"a.example", "c.example"}, withOrigin(newOrigin(t, answering(okAnswer))))
	conn := b.connectTo(b.http)
	for i := range 5 {
		conn.send(get(aURL, "a.example"))
		if resp, body := conn.response("GET"); resp.StatusCode != 200 || body != "ok" || resp.Close {
			t.Fatalf("request %d: %s %q", i, resp.Status, body)
		}
	}
	if _, dials := b.touched(); len(dials) != 1 {
		t.Errorf("%d connections for one host", len(dials))
	}
	// Another host on the same connection goes over a connection of its own.
	conn.send(get("http://c.example/", "a.example"))
	conn.response("GET")
	conn.send(get("http://evil.example/", "a.example"))
	if resp, _ := conn.response("GET"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
	conn.send(get(aURL, "a.example"))
	conn.response("GET")
	lookups, dials := b.touched()
	if want := []string{"a.example", "c.example", "a.example"}; len(dials) != 3 || !slices.Equal(lookups, want) {
		t.Errorf("dials %v, lookups %v", dials, lookups)
	}
	await(t, "the records", func() bool { return len(b.kept(KindClose)) == 7 })
	if d := b.kept(KindDecision); len(d) != 8 {
		t.Errorf("%d decisions", len(d))
	}
	if s := b.srv.Stats(); s.Requests != 7 || s.Denied != 1 || s.BytesDown != 14 || s.Conns != 1 {
		t.Errorf("%+v", s)
	}
}

// Requests that come in one packet are answered one after the other, each by its
// own verdict, and a tunnel may follow them.
func TestForwardPipelined(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, answering(okAnswer))))
	conn := b.connectTo(b.http)
	conn.send(get(aURL+"1", "a") + get("http://evil.example/", "a") + "\r\n" + get(aURL+"2", "a") +
		connectTo("evil.example:80") + connectTo("a.example:80") + "GET /3 HTTP/1.1\r\nHost: a.example\r\n\r\n")
	var got []int
	for _, method := range []string{"GET", "GET", "GET", "DENIED", "CONNECT", "GET"} {
		resp, _ := conn.response(method)
		got = append(got, resp.StatusCode)
	}
	if want := []int{200, 403, 200, 403, 200, 200}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestForwardFields(t *testing.T) {
	b := newLab(t, []string{"a.example 8080"}, withOrigin(newOrigin(t, answering(okAnswer))))
	conn := b.connectTo(b.http)
	conn.send("POST http://A.example.:8080/p?q=%7e HTTP/1.1\r\nhost: evil.example\r\nx-Odd-CASE:  v  \r\nAccept-Encoding: br\r\n" +
		"Connection: X-One, keep-alive\r\nX-One: 1\r\nConnection: x-two\r\nX-Two: 2\r\nKeep-Alive: 5\r\nTE: trailers\r\n" +
		"Proxy-Authorization: Basic x\r\nproxy-foo: y\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\nX-Upstream-Https-Proxy: http://evil.example\r\n" +
		"x-unix-socket: /run/docker.sock\r\nX-Forwarded-Host: evil.example\r\nCookie: a=1\r\nCookie: b=2\r\nContent-Length: 2\r\n\r\nhi")
	conn.response("POST")
	want := "POST /p?q=%7e HTTP/1.1\r\nHost: a.example:8080\r\nx-Odd-CASE: v\r\nAccept-Encoding: br\r\n" +
		"X-Forwarded-Host: evil.example\r\nCookie: a=1\r\nCookie: b=2\r\nContent-Length: 2\r\n\r\nhi"
	if got := b.origin.received(); got != want {
		t.Errorf("the origin got\n%q, want\n%q", got, want)
	}
}

// roundTrip sends one request through a fresh lab whose origin gives the answer.
func roundTrip(t *testing.T, method, request string, handle func(*origin, net.Conn)) (*lab, *client, *http.Response, string, error) {
	t.Helper()
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, handle)))
	conn := b.connectTo(b.http)
	conn.send(request)
	resp, body, err := conn.tryResponse(method)
	return b, conn, resp, body, err
}

func TestForwardAnswers(t *testing.T) {
	req10 := "GET " + aURL + " HTTP/1.0\r\n\r\n"
	for _, c := range []struct {
		name, method, request, answer string
		closes                        bool // the upstream closes after it
		status                        int
		body                          string
		check                         func(*http.Response) bool
	}{
		{"by length", "GET", get(aURL, "a"), okAnswer, false, 200, "ok", func(r *http.Response) bool { return r.ContentLength == 2 && !r.Close }},
		{"no content", "GET", get(aURL, "a"), "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", false, 204, "", func(r *http.Response) bool { return r.Header.Get("X") == "y" && !r.Close }},
		{"not modified", "GET", get(aURL, "a"), "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", false, 304, "", func(r *http.Response) bool { return r.Header.Get("Content-Length") == "99" }},
		{"HEAD", "HEAD", strings.Replace(get(aURL, "a"), "GET", "HEAD", 1), "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", false, 200, "", func(r *http.Response) bool { return r.ContentLength == 99 }},
		{"empty", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, 200, "", nil},
		{"chunked", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", false, 200, "abcd", func(r *http.Response) bool { return len(r.TransferEncoding) == 1 && !r.Close }},
		{"trailers", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n", false, 200, "abc", func(r *http.Response) bool { return r.Trailer.Get("X-Sum") == "7" }},
		{"trailers that would confuse", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Postern-Decision, x y\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\nPostern-Decision: denied\r\nSet-Cookie: a\r\nConnection: close\r\n\r\n", false, 200, "abc", func(r *http.Response) bool { return len(r.Trailer) == 1 && r.Trailer.Get("X-Sum") == "7" }},
		{"until the end", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\n\r\nabc", true, 200, "abc", func(r *http.Response) bool { return len(r.TransferEncoding) == 1 }},
		{"of HTTP/1.0", "GET", get(aURL, "a"), "HTTP/1.0 200 OK\r\n\r\nabc", true, 200, "abc", nil},
		{"to HTTP/1.0, chunked", "GET", req10, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", false, 200, "abc", func(r *http.Response) bool { return len(r.TransferEncoding) == 0 && r.Close }},
		{"to HTTP/1.0, by length", "GET", req10, okAnswer, false, 200, "ok", func(r *http.Response) bool { return r.ContentLength == 2 && r.Close }},
		{"redirect", "GET", get(aURL, "a"), "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", false, 302, "", func(r *http.Response) bool { return r.Header.Get("Location") == "http://169.254.169.254/" }},
		{"compressed", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8bx", false, 200, "\x1f\x8bx", func(r *http.Response) bool { return r.Header.Get("Content-Encoding") == "gzip" }},
		{"hop-by-hop", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nConnection: X-One\r\nX-One: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: Basic\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n", false, 200, "", func(r *http.Response) bool {
			return len(r.Header) == 2 && slices.Equal(r.Header["Set-Cookie"], []string{"a", "b"})
		}},
		{"in the appliance's name", "GET", get(aURL, "a"), "HTTP/1.1 403 Forbidden\r\npostern-decision: denied\r\nPOSTERN-REASON: x\r\nContent-Length: 0\r\n\r\n", false, 403, "", func(r *http.Response) bool {
			return r.Header.Get(decisionField) == "" && r.Header.Get(reasonField) == ""
		}},
		{"both framings", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", false, 200, "a", func(r *http.Response) bool { return r.Header.Get("Content-Length") == "" }},
		{"odd phrase", "GET", get(aURL, "a"), "HTTP/1.1 200 \xff\x1b[31m\r\nContent-Length: 0\r\n\r\n", false, 200, "", func(r *http.Response) bool { return r.Status == "200 ??[31m" }},
		{"no phrase", "GET", get(aURL, "a"), "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", false, 200, "", nil},
		{"early hints", "GET", get(aURL, "a"), "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + okAnswer, false, 103, "", func(r *http.Response) bool { return r.Header.Get("Link") == "x" }},
		{"early hints to HTTP/1.0", "GET", req10, "HTTP/1.1 103 Early Hints\r\n\r\n" + okAnswer, false, 200, "ok", nil},
		{"100 that nobody asked for", "GET", get(aURL, "a"), "HTTP/1.1 100 Continue\r\n\r\n" + okAnswer, false, 200, "ok", nil},
		// What is no answer.
		{"garbage", "GET", get(aURL, "a"), "SSH-2.0-x\r\n", false, 502, "broke", nil},
		{"HTTP/0.9", "GET", get(aURL, "a"), "<html>\r\n\r\n", false, 502, "broke", nil},
		{"HTTP/2", "GET", get(aURL, "a"), "HTTP/2.0 200 OK\r\n\r\n", false, 502, "broke", nil},
		{"status 99", "GET", get(aURL, "a"), "HTTP/1.1 099 x\r\n\r\n", false, 502, "broke", nil},
		{"nothing", "GET", get(aURL, "a"), "", true, 502, "closed the connection before answering", nil},
		{"half a head", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nX: y", true, 502, "inside its response head", nil},
		{"CR in a field", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n\r\n", false, 502, "broke", nil},
		{"two lengths", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", false, 502, "broke", nil},
		{"negative length", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", false, 502, "broke", nil},
		{"odd coding", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", false, 502, "broke", nil},
		{"101 that nobody asked for", "GET", get(aURL, "a"), "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", false, 502, "not asked for", nil},
		{"interim answers only", "GET", "GET " + aURL + " HTTP/1.0\r\n\r\n", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100), false, 502, "interim", nil},
		{"endless head", "GET", get(aURL, "a"), "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 300), false, 502, "too large", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			handle := scripted(c.answer, func(conn net.Conn) {
				if !c.closes {
					_, _ = io.Copy(io.Discard, conn)
				}
			})
			_, _, resp, body, err := roundTrip(t, c.method, c.request, handle)
			if err != nil {
				t.Fatal(err)
			}
			failed := c.status == http.StatusBadGateway
			if resp.StatusCode != c.status || !failed && body != c.body || failed && !strings.Contains(body, c.body) {
				t.Errorf("%s %q", resp.Status, body)
			}
			if failed && (resp.Header.Get(decisionField) != "allowed" || resp.Header.Get(reasonField) != "upstream_failed") {
				t.Errorf("%v", resp.Header)
			}
			if c.check != nil && !c.check(resp) {
				t.Errorf("%s %v %+v", resp.Status, resp.Header, resp)
			}
		})
	}
}

// The second connection, in place of one that its server was just closing, may fail too;
// the client is told so, and does not wait.
func TestForwardSecondConnectionFails(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, scripted(okAnswer, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1<<10)) // the next request, and no answer
	}))))
	conn := b.connectTo(b.http)
	conn.send(get(aURL, "a.example"))
	if resp, _ := conn.response(http.MethodGet); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	b.srv.Gate.SetDial(failWith(syscall.ECONNREFUSED))
	conn.send(get(aURL, "a.example"))
	if resp, _ := conn.response(http.MethodGet); resp.StatusCode != http.StatusBadGateway || resp.Header.Get(reasonField) != "connection_refused" {
		t.Errorf("%s", resp.Status)
	}
}
