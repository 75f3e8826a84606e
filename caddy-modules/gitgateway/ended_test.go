package gitgateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
	"postern/integration/fakegithub"
)

// TestEndOfASession ends a session while the forge takes its time over a push of
// it. When that is answered nothing of the session is left: no token, no push, and
// the record says how it stands.
func TestEndOfASession(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	g.forge.SetFaults(fakegithub.Faults{SlowReport: 30 * time.Second})
	events := g.stream(t, "/v1/events?session=push")
	type result struct {
		out string
		err error
	}
	pushed := make(chan result, 1)
	go func() {
		out, err := g.push(t, "acme/app", "agent/x")
		pushed <- result{out, err}
	}()
	for deadline := time.Now().Add(20 * time.Second); !g.landed(t, "acme/app"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the push does not arrive")
		}
	}
	started := time.Now()
	if status, body := g.control(t, http.MethodDelete, "/v1/sessions/push", ""); status != http.StatusNoContent {
		t.Fatalf("close the session: %d %s", status, body)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the end took %s", took)
	}
	if live := g.forge.Live(); len(live) != 0 {
		t.Errorf("tokens outlived the session: %+v", live)
	}
	if r := <-pushed; r.err == nil {
		t.Errorf("git takes the push for reported:\n%s", r.out)
	}
	if e := next(t, events, lease.EventPush); e["outcome"] != "unknown" {
		t.Errorf("event: %v", e)
	}
	g.forge.SetFaults(fakegithub.Faults{})
	if n := len(g.forge.WriteTokens()); n != 1 {
		t.Errorf("%d write tokens: git has pushed once more", n)
	}
}

// refs asks the gateway for a listing, through the session's proxy.
func (g *gatewayTest) refs(t *testing.T, repo string) int {
	t.Helper()
	c, err := net.Dial("tcp", g.session.Session.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintf(c, "GET http://git.internal/github.com/%s.git/info/refs?service=git-receive-pack HTTP/1.1\r\nHost: git.internal\r\nConnection: close\r\n\r\n", repo)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestListingsCostOneToken asks for refs in a loop: the forge's API sees one token
// for each configuration, and none is left when the session ends.
func TestListingsCostOneToken(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	before := len(g.forge.Tokens())
	for round := range 2 {
		for range 30 {
			if status := g.refs(t, "acme/linked"); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
		}
		if made := len(g.forge.Tokens()) - before; made != round+1 {
			t.Errorf("%d tokens were made for the listings", made)
		}
		// What the old configuration kept goes with it.
		if err := g.load(g.app() + agentRules); err != nil {
			t.Fatal(err)
		}
		// The session's own token is left.
		for deadline := time.Now().Add(10 * time.Second); len(g.forge.Live()) != 1; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("live: %+v", g.forge.Live())
			}
		}
	}
	g.refs(t, "acme/linked")
	if status, body := g.control(t, http.MethodDelete, "/v1/sessions/push", ""); status != http.StatusNoContent {
		t.Fatalf("close the session: %d %s", status, body)
	}
	if live := g.forge.Live(); len(live) != 0 {
		t.Errorf("tokens outlived the session: %+v", live)
	}
}
