package proxy

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

func withCaps(l Limits) labOption {
	return func(b *lab) { b.srv.Usage = NewUsage(l) }
}

// used is what a Usage has counted.
type used struct{ tunnels, requests, bytes int64 }

func (b *lab) used() used {
	u := b.srv.Usage
	return used{u.tunnels.Load(), u.requests.Load(), u.number.Load()}
}

func (b *lab) usage(want func(used) bool) {
	b.t.Helper()
	await(b.t, "the count", func() bool { return want(b.used()) })
}

// refusal opens a tunnel that a cap refuses, and gives the word for it.
func (b *lab) refusal(target string) string {
	b.t.Helper()
	c := b.connectTo(b.http)
	c.send(connectTo(target))
	resp, _ := c.response(http.MethodConnect)
	if resp.StatusCode != http.StatusTooManyRequests {
		b.t.Errorf("%s: %s", target, resp.Status)
	}
	return resp.Header.Get(reasonField)
}

func TestCapOnTunnels(t *testing.T) {
	for proto, open := range doors {
		t.Run(string(proto), func(t *testing.T) {
			b := newLab(t, []string{"a.example 22"}, withCaps(Limits{Tunnels: 2}))
			first := open(b, "a.example:22")
			open(b, "a.example:22")
			b.usage(func(u used) bool { return u.tunnels == 2 }) // who knows of no proxy is not told that it is there
			if got := b.refusal("a.example:22"); got != "too_many_tunnels" {
				t.Error(got)
			}
			_, dials := b.touched()
			if len(dials) > 2 {
				t.Errorf("dialled %v", dials)
			}
			// The lists speak before a cap does.
			c := b.connectTo(b.http)
			c.send(connectTo("b.example:22"))
			if resp, _ := c.response(http.MethodConnect); resp.StatusCode != http.StatusForbidden || resp.Header.Get(reasonField) != "not_allowed" {
				t.Errorf("%s", resp.Status)
			}
			s := b.connectTo(b.socks)
			s.send(noAuth)
			s.expect("\x05\x00")
			s.send(socksRequest("a.example", 22))
			s.expect(string(socksReply(replyFailure)))
			_ = first.Close()
			b.usage(func(u used) bool { return u.tunnels == 1 })
			open(b, "a.example:22").send("x")
		})
	}
}

// What did not become a tunnel is not counted as one.
func TestCapCountsOnlyTunnels(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withCaps(Limits{Tunnels: 1}))
	b.srv.Gate.SetDial(failWith(io.ErrUnexpectedEOF))
	c := b.connectTo(b.http)
	for range 3 {
		c.send(connectTo("a.example:80"))
		if resp, _ := c.response(http.MethodConnect); resp.StatusCode != http.StatusBadGateway {
			t.Fatal(resp.Status)
		}
	}
	b.usage(func(u used) bool { return u.tunnels == 0 })
}

func TestCapOnRequests(t *testing.T) {
	release := make(chan struct{})
	b := newLab(t, []string{"a.example"}, withCaps(Limits{Requests: 1}), withLimits(Limits{}),
		withOrigin(newOrigin(t, scripted("", func(conn net.Conn) {
			<-release
			_, _ = io.WriteString(conn, okAnswer)
		}))))
	first := b.connectTo(b.http)
	first.send(get("http://a.example/", "a.example"))
	await(t, "the request", func() bool { return b.origin.received() != "" })
	second := b.connectTo(b.http)
	second.send(get("http://a.example/", "a.example"))
	if resp, body := second.response(http.MethodGet); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(reasonField) != "too_many_requests" {
		t.Errorf("%s %s", resp.Status, body)
	}
	second.send(get("http://b.example/", "b.example"))
	if resp, _ := second.response(http.MethodGet); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
	close(release)
	if resp, _ := first.response(http.MethodGet); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	b.usage(func(u used) bool { return u.requests == 0 })
	for _, r := range b.kept(KindDecision) {
		if r.Code() == "too_many_requests" && (r.Allowed() || !strings.Contains(r.Reason(), "1 plain requests")) {
			t.Errorf("%+v: %s", r, r.Reason())
		}
	}
}

func TestCapOnRate(t *testing.T) {
	b := newLab(t, []string{"a.example 22"}, withCaps(Limits{PerSecond: 1}))
	// Two of three come within a second of one another, however slow this is.
	var got []string
	for range 20 {
		c := b.connectTo(b.http)
		c.send(connectTo("a.example:22"))
		resp, _ := c.response(http.MethodConnect)
		got = append(got, resp.Header.Get(reasonField))
		if got[len(got)-1] == "too_fast" {
			break
		}
	}
	if got[0] != "" || got[len(got)-1] != "too_fast" {
		t.Errorf("%q", got)
	}
	u := NewUsage(Limits{PerSecond: 2})
	to, err := policy.ParseTarget("a.example:22", policy.SchemeTCP)
	if err != nil {
		t.Fatal(err)
	}
	take := func() bool { return u.beginConnection(to) == nil }
	u.last, u.tokens = time.Now().Add(time.Hour), 2 // no time passes
	if !take() {
		t.Error("the first of a burst is refused")
	}
	u.last = time.Now().Add(-time.Hour)
	for range 2 {
		if !take() {
			t.Error("a quiet session may not open its burst")
		}
	}
}

func TestCapOnBytes(t *testing.T) {
	t.Run("tunnel", func(t *testing.T) {
		b := newLab(t, []string{"a.example 22"}, withCaps(Limits{Bytes: 1 << 20}))
		c := b.tunnel("a.example:22")
		c.send("hello")
		c.expect("hello")
		go func() { _, _ = c.Write(make([]byte, 4<<20)) }()
		_, _ = io.Copy(io.Discard, c.in)
		if r := b.awaitClose(); r.Cause != CauseBytes || r.BytesUp+r.BytesDown < 1<<20 {
			t.Errorf("%+v", r)
		}
		if got := b.refusal("a.example:22"); got != "too_many_bytes" {
			t.Error(got)
		}
		if text := b.kept(KindDecision)[1].Reason(); !strings.Contains(text, "go on in a new session") {
			t.Errorf("no cure in %q", text)
		}
		b.srv.Usage.Set(Limits{})
		b.tunnel("a.example:22").send("x")
	})
	t.Run("answer", func(t *testing.T) {
		b := newLab(t, []string{"a.example"}, withCaps(Limits{Bytes: 1 << 20}),
			withOrigin(newOrigin(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n"+strings.Repeat("a", 4<<20)))))
		c := b.connectTo(b.http)
		c.send(get("http://a.example/", "a.example"))
		if _, body, err := c.tryResponse(http.MethodGet); err == nil || len(body) >= 4<<20 {
			t.Errorf("%d bytes, %v", len(body), err)
		}
		if r := b.awaitClose(); r.Cause != CauseBytes {
			t.Errorf("%+v", r)
		}
	})
	t.Run("content", func(t *testing.T) {
		b := newLab(t, []string{"a.example"}, withCaps(Limits{Bytes: 1 << 20}), withOrigin(newOrigin(t, answering(okAnswer))))
		c := b.connectTo(b.http)
		c.send("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4194304\r\n\r\n")
		_, _ = c.Write(make([]byte, 4<<20)) // broken off
		if r := b.awaitClose(); r.Cause != CauseBytes {
			t.Errorf("%+v", r)
		}
		c = b.connectTo(b.http)
		c.send(get("http://a.example/", "a.example"))
		if resp, _ := c.response(http.MethodGet); resp.Header.Get(reasonField) != "too_many_bytes" {
			t.Errorf("%s", resp.Status)
		}
	})
}

// A reload makes a new Server: the tunnels of the old one still count.
func TestUsageOutlivesAServer(t *testing.T) {
	usage := NewUsage(Limits{Tunnels: 1})
	share := func(b *lab) { b.srv.Usage = usage }
	before := newLab(t, []string{"a.example 22"}, share)
	c := before.tunnel("a.example:22")
	c.send("hello")
	c.expect("hello")
	after := newLab(t, []string{"a.example 22"}, share)
	if got := after.refusal("a.example:22"); got != "too_many_tunnels" {
		t.Error(got)
	}
	usage.Set(Limits{Tunnels: 2})
	after.tunnel("a.example:22").send("x")
}
