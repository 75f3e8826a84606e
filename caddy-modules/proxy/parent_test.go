package proxy

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"postern/caddy-modules/policy"
)

// syncBuffer is a log that a test reads while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// parent is a proxy that answers as told and then connects to the origin of the
// lab, whatever it was asked for.
func parent(t *testing.T, answer string) *origin {
	t.Helper()
	return newOrigin(t, func(o *origin, conn net.Conn) {
		head := make([]byte, 0, 1024)
		var one [1]byte
		for !strings.HasSuffix(string(head), "\r\n\r\n") {
			if _, err := conn.Read(one[:]); err != nil {
				return
			}
			head = append(head, one[0])
		}
		o.note(head)
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
	})
}

// socksParent is the same with SOCKS5, and wants login when there is one.
func socksParent(t *testing.T, login string, reply byte) *origin {
	t.Helper()
	return newOrigin(t, func(o *origin, conn net.Conn) {
		read := func(n int) []byte {
			b := make([]byte, n)
			if _, err := io.ReadFull(conn, b); err != nil {
				return make([]byte, n)
			}
			return b
		}
		read(int(read(2)[1]))
		if login == "" {
			_, _ = conn.Write([]byte{5, 0})
		} else {
			_, _ = conn.Write([]byte{5, 2})
			user := string(read(int(read(2)[1])))
			if user+":"+string(read(int(read(1)[0]))) != login {
				_, _ = conn.Write([]byte{1, 1})
				return
			}
			_, _ = conn.Write([]byte{1, 0})
		}
		head := read(4)
		switch head[3] {
		case 1:
			o.note([]byte(netip.AddrFrom4([4]byte(read(4))).String()))
		case 3:
			o.note(read(int(read(1)[0])))
		}
		read(2)
		_, _ = conn.Write([]byte{5, reply, 0, 3, 3, 'a', 'b', 'c', 0, 1})
		_, _ = io.Copy(conn, conn)
	})
}

func withParent(t *testing.T, scheme string, o *origin, secret string, byName bool, noProxy ...string) labOption {
	t.Helper()
	var credentials func() (string, error)
	if secret != "" {
		credentials = func() (string, error) { return secret, nil }
	}
	p, err := NewParent(scheme+"://"+o.addr.String(), credentials, rules(t, noProxy...), byName)
	if err != nil {
		t.Fatal(err)
	}
	return func(b *lab) { b.srv.Gate.Parent = func() *Parent { return p } }
}

const parentOK = "HTTP/1.1 200 OK\r\nX-Foo: bar\r\n\r\n"

// What the parent sends behind its head belongs to the tunnel.
func TestParentHTTP(t *testing.T) {
	for proto, open := range doors {
		t.Run(string(proto), func(t *testing.T) {
			o := parent(t, parentOK+"SSH-2.0-early\r\n")
			b := newLab(t, []string{"a.example 22"}, withParent(t, "http", o, "user:pass:word", false))
			c := open(b, "a.example:22")
			c.expect("SSH-2.0-early\r\n")
			c.send("hello")
			c.expect("hello")
			want := "CONNECT 93.184.216.34:22 HTTP/1.1\r\nHost: 93.184.216.34:22\r\nProxy-Authorization: Basic " +
				base64.StdEncoding.EncodeToString([]byte("user:pass:word")) + "\r\n\r\n"
			if got := o.received(); got != want {
				t.Errorf("the parent got %q", got)
			}
			r := b.one()
			if !r.Allowed() || r.Parent != o.addr.String() || len(r.Resolved) != 1 || r.Resolved[0] != public || r.Addr.Addr() != public {
				t.Errorf("%+v", r)
			}
			if _, dials := b.touched(); len(dials) > 0 {
				t.Errorf("dialled %v directly", dials)
			}
			b.allow(nil, nil, nil)
			b.srv.Recheck()
			c.expectEnd()
		})
	}
}

func TestParentByName(t *testing.T) {
	for _, scheme := range []string{"http", "socks5"} {
		o, want := parent(t, parentOK), "CONNECT a.example:22 HTTP/1.1\r\nHost: a.example:22\r\n\r\n"
		if scheme == "socks5" {
			o, want = socksParent(t, "", 0), "a.example"
		}
		b := newLab(t, []string{"a.example 22", "inside.example 22 private"}, withParent(t, scheme, o, "", true))
		c := b.tunnel("a.example:22")
		c.send("hello")
		c.expect("hello")
		if got := o.received(); got != want {
			t.Errorf("the parent got %q", got)
		}
		b.srv.Recheck()
		c.send("again")
		c.expect("again")
		c2 := b.connectTo(b.http)
		c2.send(connectTo("inside.example:22"))
		if resp, _ := c2.response(http.MethodConnect); resp.Header.Get(reasonField) != "name_refused" {
			t.Errorf("%s", resp.Status)
		}
		if lookups, dials := b.touched(); len(lookups)+len(dials) > 0 {
			t.Errorf("looked up %v, dialled %v", lookups, dials)
		}
	}
}

func TestParentSOCKS(t *testing.T) {
	for _, login := range []string{"", "user:word"} {
		o := socksParent(t, login, 0)
		b := newLab(t, []string{"a.example 22"}, withParent(t, "socks5", o, login, false))
		c := b.tunnel("a.example:22")
		c.send("hello")
		c.expect("hello")
		if got := o.received(); got != public.String() {
			t.Errorf("the parent got %q", got)
		}
	}
}

// Every refusal of a parent has one word, and none of its text.
func TestParentRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		o      *origin
		scheme string
		reason string
	}{
		"403":           {parent(t, "HTTP/1.1 403 evil\x1b[31m\r\n\r\n"), "http", "parent_refused"},
		"407":           {parent(t, "HTTP/1.1 407 No\r\n\r\n"), "http", "parent_refused"},
		"100":           {parent(t, "HTTP/1.1 100 Continue\r\n\r\n"), "http", "parent_refused"},
		"no HTTP":       {parent(t, "SSH-2.0-x\r\n\r\n"), "http", "parent_refused"},
		"HTTP/2":        {parent(t, "HTTP/2.0 200 OK\r\n\r\n"), "http", "parent_refused"},
		"four digits":   {parent(t, "HTTP/1.1 2000 OK\r\n\r\n"), "http", "parent_refused"},
		"endless":       {parent(t, "HTTP/1.1 200 OK\r\n"+strings.Repeat("a", maxParentHead)), "http", "parent_refused"},
		"silent":        {parent(t, "HTTP/1.1 200 OK\r\n"), "http", "parent_timeout"},
		"socks refusal": {socksParent(t, "", 2), "socks5", "parent_refused"},
		"socks login":   {socksParent(t, "somebody:else", 0), "socks5", "parent_refused"},
		"not socks":     {newOrigin(t, scripted("HTTP/1.1 400 Bad\r\n\r\n", nil)), "socks5", "parent_refused"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, []string{"a.example 22"}, withParent(t, c.scheme, c.o, "user:pass", false))
			conn := b.connectTo(b.http)
			conn.send(connectTo("a.example:22"))
			resp, body := conn.response(http.MethodConnect)
			if got := resp.Header.Get(reasonField); got != c.reason || resp.StatusCode < 502 {
				t.Errorf("%s %s %s", resp.Status, got, body)
			}
			if strings.Contains(resp.Status+body, "evil") || strings.Contains(body, "pass") {
				t.Errorf("%s %s", resp.Status, body)
			}
			if r := b.one(); !r.Allowed() || r.Parent == "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The parent hears of nothing that the policy refuses, addresses included.
func TestParentSkipsNoCheck(t *testing.T) {
	o := parent(t, parentOK)
	b := newLab(t, []string{"a.example", "inside.example"}, withParent(t, "http", o, "", false))
	b.answers["inside.example"] = [][]netip.Addr{{public, netip.MustParseAddr("10.0.0.1")}}
	for target, reason := range map[string]string{"b.example:443": "not_allowed", "inside.example:443": "address_class", "169.254.169.254:80": "always_denied"} {
		conn := b.connectTo(b.http)
		conn.send(connectTo(target))
		if resp, _ := conn.response(http.MethodConnect); resp.Header.Get(reasonField) != reason {
			t.Errorf("%s: %s", target, resp.Header.Get(reasonField))
		}
	}
	// A parent that is one of our own listeners is not dialled.
	b.allow([]string{"a.example"}, nil, func(at netip.AddrPort) bool { return at == o.addr })
	conn := b.connectTo(b.http)
	conn.send(connectTo("a.example:443"))
	if resp, _ := conn.response(http.MethodConnect); resp.Header.Get(reasonField) != "parent_failed" {
		t.Errorf("%s %s", resp.Status, resp.Header.Get(reasonField))
	}
	if got := o.received(); got != "" {
		t.Errorf("the parent got %q", got)
	}
}

func TestParentNoProxy(t *testing.T) {
	o := parent(t, parentOK)
	b := newLab(t, []string{"a.example 22", "b.example 22", "c.example 22", "localhost 22 private"}, withParent(t, "http", o, "", false, "a.example", "198.51.100.0/24"))
	b.answers["c.example"] = [][]netip.Addr{{netip.MustParseAddr("93.184.216.35")}}
	b.answers["localhost"] = [][]netip.Addr{{netip.MustParseAddr("127.0.0.1")}}
	for host, through := range map[string]bool{"a.example": false, "b.example": true, "c.example": true, "localhost": false} {
		c := b.tunnel(host + ":22")
		c.send("hello")
		c.expect("hello")
		_ = c.Close()
		await(t, "the close of "+host, func() bool {
			for _, r := range b.kept(KindClose) {
				if r.Target.Host().String() == host {
					return (r.Parent != "") == through
				}
			}
			return false
		})
	}
}

// An answer may hold addresses of both kinds: each goes its own way and no other,
// whichever comes first.
func TestParentSplitsAnAnswer(t *testing.T) {
	near, loop := netip.MustParseAddr("93.184.216.40"), netip.MustParseAddr("127.0.0.1")
	for _, c := range []struct {
		name     string
		answer   []netip.Addr
		parentOK bool // it opens what it is asked for
		dials    bool // what is dialled directly answers
		through  bool
	}{
		{"no_proxy first", []netip.Addr{near, public}, true, true, false},
		{"no_proxy last", []netip.Addr{public, near}, true, true, true},
		{"no_proxy first and silent", []netip.Addr{near, public}, true, false, true},
		{"the parent first and refusing", []netip.Addr{public, near}, false, true, false},
		{"loopback first", []netip.Addr{loop, public}, true, false, true},
		{"loopback last", []netip.Addr{public, loop}, false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			says := parentOK
			if !c.parentOK {
				says = "HTTP/1.1 502 No\r\n\r\n"
			}
			o := parent(t, says)
			b := newLab(t, []string{"a.example 22 private"}, withParent(t, "http", o, "", false, near.String()))
			b.answers["a.example"] = [][]netip.Addr{c.answer}
			if !c.dials {
				b.srv.Gate.SetDial(func(_ context.Context, _ policy.Target, a netip.Addr) (*net.TCPConn, error) {
					b.mu.Lock()
					defer b.mu.Unlock()
					b.dials = append(b.dials, a)
					return nil, syscall.ECONNREFUSED
				})
			}
			conn := b.tunnel("a.example:22")
			conn.send("hello")
			conn.expect("hello")
			if r := b.one(); (r.Parent != "") != c.through || r.Addr.Addr() == public != c.through {
				t.Errorf("%+v", r)
			}
			if got := o.received(); strings.Contains(got, near.String()) || strings.Contains(got, loop.String()) {
				t.Errorf("the parent got %q", got)
			}
			if _, dials := b.touched(); slices.Contains(dials, public) {
				t.Errorf("dialled %v", dials)
			}
		})
	}
}

// Where the parent is, and where its credentials, is in the log and nowhere inside.
func TestParentStaysUnknownInside(t *testing.T) {
	gone := parent(t, parentOK)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := dead.Addr().String()
	_ = dead.Close()
	breaks := newOrigin(t, scripted(parentOK, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		reset(c)
	}))
	for _, c := range []struct {
		name, addr string
		secret     error
		reason     string
		logged     []string
	}{
		{"dead", at, nil, "parent_failed", []string{at, "connection refused"}},
		{"no credentials", gone.addr.String(), errors.New("open /etc/postern/proxy-auth: permission denied"), "parent_failed", []string{"/etc/postern/proxy-auth"}},
		{"broken off", breaks.addr.String(), nil, "upstream_failed", []string{breaks.addr.String()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := NewParent("http://"+c.addr, func() (string, error) { return "user:word", c.secret }, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			var log syncBuffer
			b := newLab(t, []string{"a.example"}, func(b *lab) {
				b.srv.Gate.Parent = func() *Parent { return p }
				b.srv.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			conn := b.connectTo(b.http)
			conn.send(get(aURL, "a.example"))
			resp, body := conn.response(http.MethodGet)
			if resp.StatusCode != http.StatusBadGateway || resp.Header.Get(reasonField) != c.reason {
				t.Errorf("%s %s", resp.Status, body)
			}
			_, port, _ := net.SplitHostPort(c.addr)
			for _, secret := range []string{"127.0.0.1", port, "/etc", "word"} {
				if strings.Contains(resp.Status+body, secret) {
					t.Errorf("%q is told: %s %s", secret, resp.Status, body)
				}
			}
			for _, text := range c.logged {
				if !strings.Contains(log.String(), text) {
					t.Errorf("%q is not in the log: %s", text, log.String())
				}
			}
		})
	}
}

func TestNewParentRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"https://proxy.example":            "scheme",
		"socks5h://proxy.example":          "scheme",
		"proxy.example:80":                 "scheme",
		"http://user:hidden@proxy.example": "credentials",
		"http://proxy.example/path":        "more than",
		"http://proxy.example?x":           "more than",
		"http://":                          "parse upstream",
		"http://a b":                       "no URL",
		"http://proxy.example:99999":       "parse upstream",
	} {
		if _, err := NewParent(text, nil, nil, false); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, secret := range []string{"", "user", ":word", "user:word\r\nEvil: 1"} {
		p, err := NewParent("http://proxy.example", func() (string, error) { return secret, nil }, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := p.credentials(); err == nil || strings.Contains(err.Error(), "word\r") {
			t.Errorf("%q: %v", secret, err)
		}
	}
	p, err := NewParent("socks5://proxy.example", func() (string, error) { return "", errors.New("no such file") }, nil, false)
	if err != nil || p.String() != "proxy.example:1080" {
		t.Fatalf("%v %v", p, err)
	}
	if _, _, _, err := p.credentials(); err == nil {
		t.Error("no error")
	}
}

func FuzzParentReply(f *testing.F) {
	for _, head := range []string{parentOK, "HTTP/1.0 200\r\n\r\n", "HTTP/1.1 403 No\r\n\r\n", "HTTP/1.1 20", "\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n"} {
		f.Add([]byte(head), []byte("rest"))
	}
	f.Fuzz(func(t *testing.T, head, rest []byte) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(append(append([]byte(nil), head...), rest...))
			_ = conn.Close()
		}()
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		got, err := readParentHead(conn.(*net.TCPConn))
		if err != nil {
			return
		}
		left, _ := io.ReadAll(conn)
		if all := string(got) + string(left); all != string(head)+string(rest) || parentHeadEnd(got, 0) != len(got) {
			t.Fatalf("%q is head, %q is left of %q", got, left, all)
		}
		if parentStatus(got) == nil && !strings.HasPrefix(string(got), "HTTP/1.") {
			t.Fatalf("%q is taken", got)
		}
	})
}
