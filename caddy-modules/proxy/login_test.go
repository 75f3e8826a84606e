package proxy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const (
	user     = "postern"
	password = "S3cret-of-the-session-0"
)

func withLogin(b *lab) { b.srv.Login = NewLogin(user, password) }

func basic(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

// requests are the two ways to ask an HTTP proxy.
func requests(field string) map[string]string {
	if field != "" {
		field += "\r\n"
	}
	return map[string]string{
		http.MethodConnect: "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n" + field + "\r\n",
		http.MethodGet:     "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + field + "\r\n",
	}
}

// TestLoginHTTP: without the session's credentials nothing is looked up, judged or
// reached, and the client is told what is missing.
func TestLoginHTTP(t *testing.T) {
	const name = "Proxy-Authorization: "
	for what, field := range map[string]string{
		"none":             "",
		"wrong password":   name + basic(user+":wrong"),
		"wrong user":       name + basic("root:"+password),
		"prefix":           name + basic(user+":"+password[:5]),
		"longer":           name + basic(user+":"+password+"x"),
		"empty":            name + basic(":"),
		"no colon":         name + basic(user+password),
		"another scheme":   name + "Bearer " + password,
		"not base64":       name + "Basic ***",
		"too long":         name + basic(user+":"+strings.Repeat("x", 2*maxLogin)),
		"of the origin":    "Authorization: " + basic(user+":"+password),
		"twice":            name + basic(user+":"+password) + "\r\n" + name + basic(user+":wrong"),
		"twice, the same":  name + basic(user+":"+password) + "\r\n" + name + basic(user+":"+password),
		"in another field": "X-" + name + basic(user+":"+password),
	} {
		for method, request := range requests(field) {
			t.Run(what+" "+method, func(t *testing.T) {
				b := newLab(t, []string{"a.example"}, withLogin)
				conn := b.connectTo(b.http)
				conn.send(request)
				resp, body := conn.response(method)
				if resp.StatusCode != http.StatusProxyAuthRequired || resp.Header.Get("Proxy-Authenticate") != `Basic realm="postern"` || resp.Header.Get(reasonField) != "login_required" {
					t.Errorf("%s %v", resp.Status, resp.Header)
				}
				if strings.Contains(body+fmt.Sprint(resp.Header), password) {
					t.Error("the answer has the password in it")
				}
				if lookups, dials := b.touched(); len(lookups)+len(dials) != 0 || len(b.kept(KindDecision)) != 0 {
					t.Errorf("looked up %v, dialled %v", lookups, dials)
				}
				if s := b.srv.Stats(); s.Unadmitted != 1 || s.Malformed+s.Denied != 0 {
					t.Errorf("%+v", s)
				}
				// A client that waits for the challenge asks again on the same connection.
				conn.send(requests(name + basic(user+":"+password))[http.MethodConnect])
				if resp, body := conn.response(http.MethodConnect); resp.StatusCode != http.StatusOK {
					t.Errorf("with the credentials: %s %s", resp.Status, body)
				}
			})
		}
	}
}

// TestLoginDenialStays403: a refusal by the policy is what it is without credentials.
func TestLoginDenialStays403(t *testing.T) {
	b := newLab(t, []string{"b.example"}, withLogin)
	for method, request := range requests("proxy-authorization:  basic   " + strings.TrimPrefix(basic(user+":"+password), "Basic ")) {
		conn := b.connectTo(b.http)
		conn.send(request)
		if resp, _ := conn.response(method); resp.StatusCode != http.StatusForbidden || resp.Header.Get("Proxy-Authenticate") != "" {
			t.Errorf("%s: %s %v", method, resp.Status, resp.Header)
		}
	}
}

// TestLoginEveryRequest: a connection is not trusted for what it said before.
func TestLoginEveryRequest(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withLogin, withOrigin(newOrigin(t, answering(okAnswer))))
	conn := b.connectTo(b.http)
	conn.send(requests("Proxy-Authorization: " + basic(user+":"+password))[http.MethodGet])
	if resp, body := conn.response(http.MethodGet); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, body)
	}
	if got := b.origin.received(); strings.Contains(got, "roxy-") || strings.Contains(got, base64.StdEncoding.EncodeToString([]byte(user+":"+password))) {
		t.Errorf("the upstream was told %q", got)
	}
	conn.send(requests("")[http.MethodGet])
	if resp, _ := conn.response(http.MethodGet); resp.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("%s", resp.Status)
	}
	// With content that is not read, the connection ends.
	conn.send("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello")
	if resp, _ := conn.response(http.MethodPost); resp.StatusCode != http.StatusProxyAuthRequired || !resp.Close {
		t.Errorf("%s, close %v", resp.Status, resp.Close)
	}
}

func rfc1929(u, p string) string {
	return "\x01" + string([]byte{byte(len(u))}) + u + string([]byte{byte(len(p))}) + p
}

func TestLoginSOCKS(t *testing.T) {
	const offer = "\x05\x02\x00\x02"
	for what, c := range map[string]struct{ send, want string }{
		"not offered":     {noAuth, "\x05\xff"},
		"wrong password":  {offer + rfc1929(user, "wrong"), "\x05\x02\x01\x01"},
		"wrong user":      {offer + rfc1929("root", password), "\x05\x02\x01\x01"},
		"empty":           {offer + rfc1929("", ""), "\x05\x02\x01\x01"},
		"another version": {offer + "\x05" + rfc1929(user, password)[1:], "\x05\x02\x01\x01"},
		// The request without the login before it.
		"left out": {offer + socksRequest("a.example", 80), "\x05\x02\x01\x01"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newLab(t, []string{"a.example"}, withLogin)
			conn := b.connectTo(b.socks)
			conn.send(c.send)
			if got := conn.expectEnd(); got != c.want {
				t.Errorf("got %x, want %x", got, c.want)
			}
			if lookups, dials := b.touched(); len(lookups)+len(dials) != 0 {
				t.Errorf("looked up %v, dialled %v", lookups, dials)
			}
		})
	}
	b := newLab(t, []string{"a.example"}, withLogin)
	for what, send := range map[string]string{"in one packet": offer, "alone offered": "\x05\x01\x02"} {
		t.Run(what, func(t *testing.T) {
			conn := b.connectTo(b.socks)
			conn.send(send + rfc1929(user, password) + socksRequest("a.example", 2222))
			conn.expect("\x05\x02\x01\x00\x05")
			if reply, err := conn.in.ReadByte(); err != nil || reply != replyDenied { // port 2222 is in no rule
				t.Errorf("reply %d, %v", reply, err)
			}
		})
	}
	plain := newLab(t, []string{"a.example"})
	conn := plain.connectTo(plain.socks)
	conn.send(offer)
	conn.expect("\x05\x00") // no login where none is needed
}

func TestReadLogin(t *testing.T) {
	whole := rfc1929(user, password)
	for n := range len(whole) {
		if _, _, _, err := readLogin([]byte(whole[:n])); !errors.Is(err, errShort) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	u, p, n, err := readLogin([]byte(whole + "more"))
	if u != user || p != password || n != len(whole) || err != nil {
		t.Errorf("got %q %q %d %v", u, p, n, err)
	}
}

func TestLoginIsNotPrinted(t *testing.T) {
	l := NewLogin(user, password)
	if text := fmt.Sprintf("%v %+v %s", l, l, l); strings.Contains(text, password) || strings.Contains(text, "[") {
		t.Errorf("printed %s", text)
	}
}

// FuzzLogin: whatever a client sends, only the very credentials are taken for them.
func FuzzLogin(f *testing.F) {
	f.Add([]byte(rfc1929(user, password)))
	f.Add([]byte("\x01\x00\x00"))
	f.Add([]byte("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nProxy-Authorization: " + basic(user+":"+password) + "\r\n\r\n"))
	f.Add([]byte("GET http://a/ HTTP/1.1\r\nHost: a\r\nproxy-Authorization: basic  =\r\n\r\n"))
	l := NewLogin(user, password)
	f.Fuzz(func(t *testing.T, b []byte) {
		u, p, n, err := readLogin(b)
		switch {
		case err != nil && (u != "" || p != "" || n != 0):
			t.Fatalf("%x: %q %q %d with %v", b, u, p, n, err)
		case err == nil && (n > len(b) || string(b[:n]) != rfc1929(u, p) || l.matches(u, p) != (u == user && p == password)):
			t.Fatalf("%x: read %q %q", b, u, p)
		}
		limits := (&Limits{}).withDefaults()
		n, err = scanHead(b, &limits)
		var r request
		if err != nil || n == 0 || r.parseHead(b[:n]) != nil {
			return
		}
		if u, p, ok := r.authorization(); ok && !strings.Contains(strings.ToLower(string(b[:n])), "proxy-authorization:") {
			t.Fatalf("%q %q out of %q", u, p, b)
		}
	})
}
