package proxy

import (
	"net/http"
	"strings"
	"testing"

	"postern/caddy-modules/policy"
)

// signposted is a lab whose gateway takes pushes to forge.example, on port 80.
func signposted(t *testing.T) *lab {
	t.Helper()
	b := newLab(t, []string{"forge.example", "other.example"}, withOrigin(newOrigin(t, answering(okAnswer))), func(b *lab) {
		b.srv.PushAt = func(t policy.Target) (string, bool) {
			return "http://git.internal/forge.example/", t.String() == "forge.example:80" || t.String() == "denied.example:80"
		}
	})
	return b
}

// A push to a forge itself is told where pushes go, and nothing is looked up.
func TestPushIsShownTheWay(t *testing.T) {
	b := signposted(t)
	for _, tunnel := range []bool{false, true} {
		for _, path := range []string{"/acme/app.git/info/refs?service=git-receive-pack", "/acme/app.git/git-receive-pack"} {
			conn := b.connectTo(b.http)
			if tunnel {
				conn.send(connectTo("forge.example:80"))
				conn.response("CONNECT")
				conn.send("GET " + path + " HTTP/1.1\r\nHost: forge.example\r\n\r\n")
			} else {
				conn.send(get("http://forge.example"+path, "forge.example"))
			}
			resp, body := conn.response("GET")
			if resp.StatusCode != http.StatusForbidden || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") ||
				resp.Header.Get("Postern-Reason") != "push_elsewhere" || !strings.Contains(body, "\nPush to http://git.internal/forge.example/acme/app.git\n") {
				t.Errorf("%s (tunnel: %t): %s %v %q", path, tunnel, resp.Status, resp.Header, body)
			}
		}
	}
	if got := b.origin.received(); strings.Contains(got, "receive-pack") {
		t.Errorf("the forge got %q", got)
	}
	d := b.kept(KindDecision)
	if len(d) != 4 {
		t.Fatalf("%d decisions", len(d))
	}
	for _, r := range d {
		if r.Allowed() || r.Code() != "push_elsewhere" || r.Reason() != "forge.example:80 is refused: pushes go through http://git.internal/forge.example/" {
			t.Errorf("%t %s %q", r.Allowed(), r.Code(), r.Reason())
		}
	}
	// The connection goes on: a fetch is the forge's own business.
	conn := b.connectTo(b.http)
	conn.send(get("http://forge.example/acme/app.git/info/refs?service=git-receive-pack", "forge.example"))
	conn.response("GET")
	conn.send(get("http://forge.example/acme/app.git/info/refs?service=git-upload-pack", "forge.example"))
	if resp, body := conn.response("GET"); resp.StatusCode != 200 || body != "ok" {
		t.Errorf("fetch: %s %q", resp.Status, body)
	}
}

// What is no push, no forge, or not allowed in the first place has its usual answer.
func TestPushIsLeftAlone(t *testing.T) {
	b := signposted(t)
	for url, want := range map[string]int{
		"http://forge.example/acme/app.git/info/refs?service=git-upload-pack":   200,
		"http://forge.example/acme/app.git/info/refs":                           200,
		"http://forge.example/info/refs?x=git-receive-pack":                     200,
		"http://forge.example/docs/git-receive-pack.html":                       200,
		"http://forge.example/git-receive-pack":                                 200,
		"http://other.example/acme/app.git/info/refs?service=git-receive-pack":  200,
		"http://denied.example/acme/app.git/info/refs?service=git-receive-pack": 403,
	} {
		conn := b.connectTo(b.http)
		conn.send(get(url, "x"))
		resp, _ := conn.response("GET")
		if resp.StatusCode != want || resp.Header.Get("Postern-Reason") == "push_elsewhere" {
			t.Errorf("%s: %s %s", url, resp.Status, resp.Header.Get("Postern-Reason"))
		}
	}
}
