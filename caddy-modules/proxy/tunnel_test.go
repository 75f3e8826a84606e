package proxy

import (
	"testing"
)

// A rule for plain HTTP alone lets a tunnel to port 80 carry that, and no TLS; one for
// TLS alone opens no tunnel but that to port 443.
func TestTunnelHoldsScheme(t *testing.T) {
	hello := buildHello(helloSpec{names: []string{"a.example"}})
	for _, c := range []struct{ name, rule, send, code string }{
		{"TLS, rule for both", "a.example", hello, "allowed"},
		{"TLS, rule for http", "a.example http", hello, "scheme_not_allowed"},
		{"TLS, rule for both ports", "a.example 80", hello, "allowed"},
	} {
		for proto, open := range doors {
			t.Run(c.name+" by "+string(proto), func(t *testing.T) {
				t.Parallel()
				b := newLab(t, []string{c.rule})
				conn := open(b, "a.example:80")
				conn.send(c.send)
				allowed := c.code == "allowed"
				if allowed {
					conn.expect(c.send)
					_ = conn.CloseWrite()
				}
				want := ""
				if !allowed { // in words that a client of TLS shows
					want = string(accessDenied)
				}
				if got := conn.expectEnd(); got != want {
					t.Errorf("before the end came %q", got)
				}
				r := b.awaitClose()
				d := b.kept(KindDecision)
				if len(d) != 1 || d[0].Code() != c.code || d[0].Allowed() != allowed || r.Allowed() != allowed {
					t.Errorf("decision %+v, close %+v", d, r)
				}
				if got := b.origin.received(); !allowed && got != "" {
					t.Errorf("the origin got %q", got)
				}
				if s := b.srv.Stats(); (s.Denied == 0) != allowed {
					t.Errorf("%+v", s)
				}
			})
		}
	}
	t.Run("HTTP, rule for http", func(t *testing.T) {
		t.Parallel()
		b := newLab(t, []string{"a.example http"}, withOrigin(newOrigin(t, answering(okAnswer))))
		conn := b.tunnel("a.example:80")
		conn.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
		if resp, body := conn.response("GET"); resp.StatusCode != 200 {
			t.Errorf("%s %s", resp.Status, body)
		}
	})
	for _, c := range []struct{ rule, ask, code string }{
		{"a.example https", "CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n", "port_not_allowed"},
		{"a.example https", "GET http://a.example:443/ HTTP/1.1\r\nHost: a.example:443\r\n\r\n", "scheme_not_allowed"},
		{"a.example 8080 http", "CONNECT a.example:8080 HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", "scheme_not_allowed"},
	} {
		t.Run(c.rule+" and "+methodOf(c.ask), func(t *testing.T) {
			t.Parallel()
			b := newLab(t, []string{c.rule})
			conn := b.connectTo(b.http)
			conn.send(c.ask)
			if resp, body := conn.response(methodOf(c.ask)); resp.StatusCode != 403 || resp.Header.Get(reasonField) != c.code {
				t.Errorf("%s %v %s", resp.Status, resp.Header, body)
			}
			if got := b.origin.received(); got != "" {
				t.Errorf("the origin got %q", got)
			}
		})
	}
}
