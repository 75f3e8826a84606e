package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

// An answer that breaks off must not look complete, whatever its framing.
func TestForwardTruncated(t *testing.T) {
	for name, answer := range map[string]string{
		"by length": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
		"chunked":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
		"bad chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
	} {
		for _, version := range []string{"1.1", "1.0"} {
			t.Run(name+" to HTTP/"+version, func(t *testing.T) {
				t.Parallel()
				request := "GET " + aURL + " HTTP/" + version + "\r\nHost: a\r\n\r\n"
				b, conn, resp, body, err := roundTrip(t, "GET", request, scripted(answer, nil))
				if err == nil {
					t.Errorf("%s %q looks complete", resp.Status, body)
				}
				if _, err := conn.in.ReadByte(); err == nil {
					t.Error("bytes after the break")
				}
				if r := b.awaitClose(); r.Cause != CauseError {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

func TestForwardStream(t *testing.T) {
	// Each piece must arrive before the next one is sent.
	next := make(chan struct{})
	handle := scripted("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", func(conn net.Conn) {
		for i := range 5 {
			_, _ = fmt.Fprintf(conn, "2\r\ne%d\r\n", i)
			<-next
		}
		_, _ = io.WriteString(conn, "0\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, handle)))
	conn := b.connectTo(b.http)
	conn.send(get(aURL, "a"))
	resp, err := http.ReadResponse(conn.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		piece := make([]byte, 2)
		if _, err := io.ReadFull(resp.Body, piece); err != nil || string(piece) != fmt.Sprintf("e%d", i) {
			t.Fatalf("%q %v", piece, err)
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
}

// Contents of every size around the sizes of the buffers, both framings, both
// ways.
func TestForwardSizes(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withLimits(Limits{}), withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
		in := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			resp := &http.Response{ProtoMajor: 1, ProtoMinor: 1, StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(body))), ContentLength: int64(len(body))}
			if req.URL.Query().Get("chunked") != "" {
				resp.ContentLength, resp.TransferEncoding = -1, []string{"chunked"}
			}
			if resp.Write(conn) != nil {
				return
			}
		}
	})))
	conn := b.connectTo(b.http)
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	for _, size := range []int{0, 1, 15, 16, 255, 256, 511, smallSize - 200, smallSize, smallSize + 1, 9999, largeSize - 300, largeSize - 8, largeSize - 1, largeSize, largeSize + 1, 0xffff + 6, 3 * largeSize, 1 << 20} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		for _, in := range []string{"length", "chunked"} {
			for _, out := range []string{"", "?chunked=1"} {
				framed := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, body)
				if in == "chunked" {
					framed = "Transfer-Encoding: chunked\r\n\r\n" + string(appendChunks(body)) + "0\r\n\r\n"
				}
				conn.send("POST " + aURL + out + " HTTP/1.1\r\nHost: a\r\n" + framed)
				resp, got := conn.response("POST")
				if resp.StatusCode != 200 || got != body {
					t.Fatalf("%d bytes by %s%s: %s, %d bytes back", size, in, out, resp.Status, len(got))
				}
			}
		}
	}
	if _, dials := b.touched(); len(dials) != 1 {
		t.Errorf("%d connections", len(dials))
	}
}

// appendChunks cuts text into chunks of growing size.
func appendChunks(text string) (b []byte) {
	for size := 1; len(text) > 0; size = size*3 + 1 {
		n := min(size, len(text))
		b = appendChunk(b, []byte(text[:n]))
		text = text[n:]
	}
	return b
}

func TestForwardTrailersUp(t *testing.T) {
	b, _, resp, _, err := roundTrip(t, "POST", "POST "+aURL+" HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nX-Sum: 7\r\nHost: evil.example\r\n\r\n", answering(okAnswer))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	if got := b.origin.received(); !strings.HasSuffix(got, "Trailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n") {
		t.Errorf("the origin got %q", got)
	}
}

func TestForwardExpect(t *testing.T) {
	post := "POST " + aURL + " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
	t.Run("refused by the upstream", func(t *testing.T) {
		b, conn, resp, body, err := roundTrip(t, "POST", post, scripted("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))
		if err != nil || resp.StatusCode != 413 || body != "big" || !resp.Close {
			t.Fatalf("%v %q %v", resp, body, err)
		}
		conn.expectEnd()
		if got := b.origin.received(); !strings.Contains(got, "Expect: 100-continue\r\n") || strings.HasSuffix(got, "abcd") {
			t.Errorf("the origin got %q", got)
		}
	})
	t.Run("an upstream that never says 100", func(t *testing.T) {
		got := make(chan string, 1)
		b := newLab(t, []string{"a.example"}, withLimits(Limits{}), withOrigin(newOrigin(t, func(_ *origin, c net.Conn) {
			req, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			body, _ := io.ReadAll(req.Body)
			got <- string(body)
			_, _ = io.WriteString(c, okAnswer)
		})))
		conn := b.connectTo(b.http)
		begun := time.Now()
		conn.send(post)
		if resp, _ := conn.response("POST"); resp.StatusCode != 100 || time.Since(begun) < continuePatience/2 {
			t.Fatalf("%s after %v", resp.Status, time.Since(begun))
		}
		conn.send("abcd")
		if resp, _ := conn.response("POST"); resp.StatusCode != 200 || <-got != "abcd" {
			t.Errorf("%s", resp.Status)
		}
	})
	t.Run("a client that does not wait", func(t *testing.T) {
		_, _, resp, _, err := roundTrip(t, "POST", post+"abcd", answering(okAnswer))
		if err != nil || resp.StatusCode != 100 && resp.StatusCode != 200 {
			t.Errorf("%v %v", resp, err)
		}
	})
	t.Run("denied", func(t *testing.T) {
		b := newLab(t, nil)
		conn := b.connectTo(b.http)
		conn.send(strings.Replace(post, "Content-Length: 4", "Content-Length: 1000000", 1))
		if resp, _ := conn.response("POST"); resp.StatusCode != http.StatusForbidden || !resp.Close {
			t.Errorf("%s", resp.Status)
		}
		conn.expectEnd()
	})
}

func TestForwardStalls(t *testing.T) {
	post := "POST " + aURL + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\na"
	silent := func(_ *origin, c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for _, c := range []struct {
		name, request string
		handle        func(*origin, net.Conn)
		status        int
		reason        string
	}{
		{"content", post, silent, http.StatusRequestTimeout, "request_timeout"},
		{"answer", get(aURL, "a"), silent, http.StatusGatewayTimeout, "upstream_timeout"},
		{"answer inside its head", get(aURL, "a"), scripted("HTTP/1.1 200 OK\r\nX: ", func(c net.Conn) { silent(nil, c) }), http.StatusGatewayTimeout, "upstream_timeout"},
		{"answer inside its content", get(aURL, "a"), scripted("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", func(c net.Conn) { silent(nil, c) }), 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, conn, resp, _, err := roundTrip(t, "GET", c.request, c.handle)
			switch {
			case c.status == 0 && err == nil:
				t.Errorf("%s looks complete", resp.Status)
			case c.status != 0 && (err != nil || resp.StatusCode != c.status || resp.Header.Get(reasonField) != c.reason):
				t.Errorf("%v %v", resp, err)
			}
			if rest, _ := io.ReadAll(conn.in); len(rest) > 0 {
				t.Errorf("more: %q", rest)
			}
			if r := b.awaitClose(); r.Cause != CauseIdle {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestForwardHeaderStalls(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "half a line": "GET http", "half a head": "GET " + aURL + " HTTP/1.1\r\nX: y\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLab(t, []string{"a.example"})
			conn := b.connectTo(b.http)
			conn.send(text)
			got := conn.expectEnd()
			if text == "" && got != "" || text != "" && !strings.HasPrefix(got, "HTTP/1.1 408 ") {
				t.Errorf("%q", got)
			}
		})
	}
}

// Content whose framing breaks after the first packet: the upstream must not get
// an end, and the client is told.
func TestForwardContentBreaks(t *testing.T) {
	chunkedPost := "POST " + aURL + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		name, first, second string
		closes              bool
		status              int
	}{
		{"bad chunk size", chunkedPost + "3\r\nabc\r\n", "zz\r\n", false, 400},
		{"bare LF", chunkedPost + "3\r\nabc\r\n", "4\nabcd\r\n0\r\n\r\n", false, 400},
		{"the client leaves", chunkedPost + "3\r\nabc\r\n", "", true, 0},
		{"the client leaves, by length", "POST " + aURL + " HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", "", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err == nil {
					_, err = io.Copy(io.Discard, req.Body)
				}
				ended <- err
			})))
			conn := b.connectTo(b.http)
			conn.send(c.first)
			await(t, "the connection", func() bool { b.origin.mu.Lock(); defer b.origin.mu.Unlock(); return b.origin.conns == 1 })
			time.Sleep(20 * time.Millisecond)
			if c.closes {
				_ = conn.Close()
			} else {
				conn.send(c.second)
				if resp, _ := conn.response("POST"); resp.StatusCode != c.status || resp.Header.Get(decisionField) != "malformed" {
					t.Errorf("%s", resp.Status)
				}
			}
			if err := <-ended; err == nil {
				t.Error("the content looked complete to the origin")
			}
		})
	}
}

// An answer may come, and be complete, long before the content is.
func TestForwardEarlyAnswer(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withLimits(Limits{}), withOrigin(newOrigin(t, scripted("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))))
	conn := b.connectTo(b.http)
	conn.send("POST " + aURL + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc")
	if resp, _ := conn.response("POST"); resp.StatusCode != 401 {
		t.Errorf("%s", resp.Status)
	}
	conn.expectEnd()
}

// A kept connection that its server has closed meanwhile is replaced without the
// client noticing, unless sending twice could do harm.
func TestForwardStaleConnection(t *testing.T) {
	oneEach := scripted(okAnswer, nil) // closes without saying so
	t.Run("seen before", func(t *testing.T) {
		b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, oneEach)))
		conn := b.connectTo(b.http)
		for range 3 {
			conn.send("POST " + aURL + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
			if resp, body := conn.response("POST"); body != "ok" {
				t.Fatalf("%s %q", resp.Status, body)
			}
			time.Sleep(20 * time.Millisecond) // the end arrives
		}
	})
	// Closes when the second request arrives, which is too late to see before.
	late := func(o *origin, c net.Conn) {
		buf := make([]byte, 4096)
		if n, err := c.Read(buf); err != nil {
			return
		} else {
			o.note(buf[:n])
		}
		_, _ = io.WriteString(c, okAnswer)
		n, _ := c.Read(buf)
		o.note(buf[:n])
	}
	t.Run("seen too late, GET", func(t *testing.T) {
		b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, late)))
		conn := b.connectTo(b.http)
		for i := range 3 {
			conn.send(get(aURL, "a"))
			if resp, body := conn.response("GET"); body != "ok" {
				t.Fatalf("request %d: %s %q", i, resp.Status, body)
			}
		}
	})
	t.Run("seen too late, POST", func(t *testing.T) {
		b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, late)))
		conn := b.connectTo(b.http)
		conn.send(get(aURL, "a"))
		conn.response("GET")
		conn.send("POST " + aURL + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
		if resp, _ := conn.response("POST"); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s", resp.Status)
		}
		if n := strings.Count(b.origin.received(), "POST"); n != 1 {
			t.Errorf("sent %d times", n)
		}
	})
	t.Run("the new connection fails", func(t *testing.T) {
		b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, oneEach)))
		conn := b.connectTo(b.http)
		conn.send(get(aURL, "a"))
		conn.response("GET")
		b.allow([]string{"a.example"}, nil, func(netip.AddrPort) bool { return true })
		time.Sleep(20 * time.Millisecond)
		conn.send(get(aURL, "a"))
		if resp, _ := conn.response("GET"); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s", resp.Status)
		}
	})
}

// Bytes that an upstream sends unasked must never become the next answer.
func TestForwardUnaskedBytes(t *testing.T) {
	poison := "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, scripted(okAnswer+poison, func(c net.Conn) {
		_, _ = io.WriteString(c, poison)
		_, _ = io.Copy(io.Discard, c)
	}))))
	conn := b.connectTo(b.http)
	for range 3 {
		conn.send(get(aURL, "a"))
		if _, body := conn.response("GET"); body != "ok" {
			t.Fatalf("%q", body)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, dials := b.touched(); len(dials) != 3 {
		t.Errorf("%d connections", len(dials))
	}
}

// A client that leaves takes its request along.
func TestForwardClientLeaves(t *testing.T) {
	gone := make(chan struct{})
	b := newLab(t, []string{"a.example"}, withLimits(Limits{}), withOrigin(newOrigin(t, func(_ *origin, c net.Conn) {
		_, _ = io.Copy(io.Discard, c)
		close(gone)
	})))
	conn := b.connectTo(b.http)
	conn.send(get(aURL, "a"))
	await(t, "the request", func() bool { return b.srv.Stats().OpenConns == 1 && len(b.kept(KindDecision)) == 1 })
	_ = conn.Close()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Fatal("the upstream is still asked")
	}
	if r := b.awaitClose(); r.Cause != CauseError {
		t.Errorf("%+v", r)
	}
}

// A slow answer is not mistaken for one whose client has left, and the next
// request after it is read in full.
func TestForwardSlowAnswer(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withLimits(Limits{}), withOrigin(newOrigin(t, func(_ *origin, c net.Conn) {
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			time.Sleep(lookoutAfter + 200*time.Millisecond)
			_, _ = io.WriteString(c, okAnswer)
		}
	})))
	conn := b.connectTo(b.http)
	for range 2 {
		conn.send(get(aURL, "a") + get(aURL, "a")[:10])
		if _, body := conn.response("GET"); body != "ok" {
			t.Errorf("%q", body)
		}
		conn.send(get(aURL, "a")[10:])
		if _, body := conn.response("GET"); body != "ok" {
			t.Errorf("%q", body)
		}
	}
}

// Environment variables and clients' fields never choose where the proxy dials.
func TestForwardIgnoresEnvironment(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	b, _, resp, _, err := roundTrip(t, "GET", get(aURL, "a"), answering(okAnswer))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	if _, dials := b.touched(); !slices.Equal(dials, []netip.Addr{public}) {
		t.Errorf("dialled %v", dials)
	}
}

func TestForwardFails(t *testing.T) {
	b := newLab(t, []string{"a.example"})
	b.srv.Gate.SetDial(func(context.Context, policy.Target, netip.Addr) (*net.TCPConn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	})
	conn := b.connectTo(b.http)
	for range 2 {
		conn.send(get(aURL, "a"))
		if resp, body := conn.response("GET"); resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "refused the connection") || resp.Close {
			t.Fatalf("%s %q", resp.Status, body)
		}
	}
	conn.send("POST " + aURL + " HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
	if resp, _ := conn.response("POST"); !resp.Close {
		t.Error("the connection goes on with content unread")
	}
	if b.srv.Stats().Failed != 3 {
		t.Errorf("%+v", b.srv.Stats())
	}
}
