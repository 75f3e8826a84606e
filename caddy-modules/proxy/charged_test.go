package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

// A question is no way around the cap: what waits for its answer is under way, and
// nobody is asked about what a cap refuses.
func TestCapOnRequestsThatAreAskedAbout(t *testing.T) {
	release := make(chan struct{})
	a := &asker{answer: func(ctx context.Context, d policy.Decision) (policy.Decision, error) {
		<-release
		return yes(ctx, d)
	}}
	b := askLab(t, a, policy.Lists{AskAny: true}, withCaps(Limits{Requests: 1}), withOrigin(newOrigin(t, answering(okAnswer))))
	first := b.connectTo(b.http)
	first.send(get(aURL, "a.example"))
	await(t, "the question", func() bool { return a.count() == 1 })
	second := b.connectTo(b.http)
	second.send(get(aURL, "a.example"))
	if resp, body := second.response(http.MethodGet); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(reasonField) != "too_many_requests" {
		t.Errorf("%s %s", resp.Status, body)
	}
	close(release)
	if resp, _ := first.response(http.MethodGet); resp.StatusCode != http.StatusOK || a.count() != 1 {
		t.Errorf("%s, asked %d times", resp.Status, a.count())
	}
	b.usage(func(u used) bool { return u.requests == 0 })
}

// A request is judged once: a policy that changes between the cap and the dial lets
// nothing past the cap.
func TestCapOnRequestsGoesByOneDecision(t *testing.T) {
	release := make(chan struct{})
	b := newLab(t, []string{"a.example"}, withCaps(Limits{Requests: 1}), withOrigin(newOrigin(t, scripted("", func(conn net.Conn) {
		<-release
		_, _ = io.WriteString(conn, okAnswer)
	}))))
	first := b.connectTo(b.http)
	first.send(get(aURL, "a.example"))
	await(t, "the request", func() bool { return b.origin.received() != "" })
	denies, allows := policy.Closed("not at the moment"), b.set.Load()
	var asked atomic.Int64
	b.srv.Gate.Policy = func() *policy.Set {
		if asked.Add(1) == 1 {
			return denies
		}
		return allows
	}
	second := b.connectTo(b.http)
	second.send(get(aURL, "a.example"))
	if resp, _ := second.response(http.MethodGet); resp.StatusCode != http.StatusForbidden || resp.Header.Get(reasonField) != "policy_gone" {
		t.Errorf("%s", resp.Status)
	}
	close(release)
	first.response(http.MethodGet)
}

// Every byte that goes up counts, in whichever packet it came.
func TestCapCountsWhatComesWithTheHead(t *testing.T) {
	content := strings.Repeat("a", 4000)
	for name, sent := range map[string]string{
		"content": "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4000\r\n\r\n" + content,
		"chunks":  "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\nfa0\r\n" + content + "\r\n0\r\n\r\n",
		"a field": get(aURL, "a.example", "X-Data: "+content),
	} {
		b := newLab(t, []string{"a.example"}, withCaps(Limits{Bytes: 6000}), withOrigin(newOrigin(t, answering(okAnswer))))
		c := b.connectTo(b.http)
		c.send(sent)
		if resp, _ := c.response(http.MethodPost); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", name, resp.Status)
		}
		if n := b.used().bytes; n < 4000 || n > 4500 {
			t.Errorf("%s: %d bytes counted", name, n)
		}
		c.send(sent)
		if _, _, err := c.tryResponse(http.MethodPost); err == nil {
			t.Errorf("%s: more than the cap went through", name)
		}
	}
	b := newLab(t, []string{"a.example 22"}, withCaps(Limits{Bytes: 1 << 20}))
	c := b.connectTo(b.http)
	c.send(connectTo("a.example:22") + content)
	c.response(http.MethodConnect)
	b.usage(func(u used) bool { return u.bytes == 8000 }) // and back
}

// What the appliance answers itself is no egress: caps neither count it nor cut it,
// whatever else they have refused by then.
func TestLocalIsNotCharged(t *testing.T) {
	local := func(to policy.Target) (func(context.Context) (net.Conn, error), bool) {
		return func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer func() { _ = far.Close() }()
				in := bufio.NewReader(far)
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					_, _ = io.WriteString(far, okAnswer)
				}
			}()
			return near, nil
		}, to.Host().Name() == "git.internal"
	}
	b := newLab(t, []string{"a.example 22"}, withCaps(Limits{Tunnels: 1, Requests: 1, PerSecond: 1, Bytes: 10}), func(b *lab) { b.srv.Local = local })
	spend := b.tunnel("a.example:22")
	spend.send("hello")
	spend.expect("hello")
	b.srv.Usage.requests.Add(1)
	before := b.used()
	post := "POST http://git.internal/ HTTP/1.1\r\nHost: git.internal\r\nContent-Length: 4000\r\n\r\n" + strings.Repeat("a", 4000)
	plain := b.connectTo(b.http)
	for range 2 {
		plain.send(post)
		if resp, body := plain.response(http.MethodPost); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", resp.Status, body)
		}
	}
	tunnel := b.tunnel("git.internal:80")
	tunnel.send(strings.Replace(post, "http://git.internal", "", 1))
	if resp, _ := tunnel.response(http.MethodPost); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if after := b.used(); after != before {
		t.Errorf("counted: %+v, then %+v", before, after)
	}
	// The same client connection is charged again for what is egress.
	plain.send(get("http://b.example/", "b.example"))
	if resp, _ := plain.response(http.MethodGet); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
}

// A WebSocket is a tunnel, and from then on no request under way.
func TestCapOnWebSockets(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withCaps(Limits{Tunnels: 1, Requests: 1}), withOrigin(newOrigin(t, scripted(switched, func(c net.Conn) {
		_, _ = io.Copy(c, c)
	}))))
	first := b.connectTo(b.http)
	first.send(handshake)
	if resp, err := http.ReadResponse(first.in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	b.usage(func(u used) bool { return u.tunnels == 1 && u.requests == 0 })
	if got := b.refusal("a.example:443"); got != "too_many_tunnels" {
		t.Error(got)
	}
	second := b.connectTo(b.http)
	second.send(handshake)
	if resp, _ := second.response(http.MethodGet); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get(reasonField) != "too_many_tunnels" {
		t.Errorf("%s", resp.Status)
	}
	b.usage(func(u used) bool { return u.tunnels == 1 && u.requests == 0 })
	_ = first.Close()
	b.usage(func(u used) bool { return u.tunnels == 0 && u.requests == 0 })
}

// One that its server does not switch gives its place back.
func TestCapOnWebSocketsThatAreRefused(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withCaps(Limits{Tunnels: 1}), withOrigin(newOrigin(t, answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))))
	conn := b.connectTo(b.http)
	for range 2 {
		conn.send(handshake)
		if resp, _ := conn.response(http.MethodGet); resp.StatusCode != http.StatusBadRequest {
			t.Fatal(resp.Status)
		}
	}
	b.usage(func(u used) bool { return u.tunnels == 0 && u.requests == 0 })
}

// What led nowhere is no tunnel, however long its client stays to hear of it.
func TestTurnedBackIsNoTunnel(t *testing.T) {
	for _, silent := range []bool{true, false} {
		patient := quick
		patient.KeepAlive, patient.Header = time.Minute, time.Minute
		b := newLab(t, []string{"a.example"}, withLimits(patient), withCaps(Limits{Tunnels: 1}))
		b.srv.Gate.SetDial(failWith(syscall.ECONNREFUSED))
		c := b.transparentTo("a.example:80")
		if !silent {
			c.send("GET / HT")
		}
		await(t, "the failure", func() bool { return b.srv.Stats().Failed == 1 })
		b.usage(func(u used) bool { return u.tunnels == 0 })
		if n := b.srv.Stats().OpenConns; n != 1 {
			t.Errorf("%d connections", n)
		}
	}
}
