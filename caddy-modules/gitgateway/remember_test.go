package gitgateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// briefly is a queue whose pushes do not wait long.
const briefly = `"approver": {"by": "queue", "timeout": "1s"}, ` + agentRules

// listening holds the stream of questions open until the test ends.
func (g *gatewayTest) listening(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := g.request(ctx, http.MethodGet, "/v1/approvals?stream", "")
	if err != nil || resp.StatusCode != http.StatusOK {
		cancel()
		t.Fatalf("listen: %v %v", resp, err)
	}
	go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	t.Cleanup(func() { cancel(); _ = resp.Body.Close() })
}

// openQuestions are the ids on the control socket.
func (g *gatewayTest) openQuestions(t *testing.T) (ids []string) {
	t.Helper()
	_, body := g.control(t, http.MethodGet, "/v1/approvals", "")
	var list struct{ Approvals []struct{ ID string } }
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for _, q := range list.Approvals {
		ids = append(ids, q.ID)
	}
	return ids
}

func (g *gatewayTest) answer(t *testing.T, id, body string) {
	t.Helper()
	if status, text := g.control(t, http.MethodPost, "/v1/approvals/"+id, body); status != http.StatusNoContent {
		t.Fatalf("answer %s: %d %s", id, status, text)
	}
}

// TestAnswerOverAReload: a push gives up, the configuration is loaded anew, the
// answer comes, it is loaded once more, and the same push goes through.
func TestAnswerOverAReload(t *testing.T) {
	g := newGatewayTest(t, briefly)
	g.listening(t)
	out, err := g.push(t, "acme/app", "main")
	ids := g.openQuestions(t)
	if err == nil || len(ids) != 1 || !strings.Contains(out, "[remote rejected] HEAD -> main (Control Center policy: approval pending (id "+ids[0]+"), push again)") {
		t.Fatalf("%v, open %v\n%s", err, ids, out)
	}
	for _, step := range []string{"before the answer", "behind it"} {
		if err := g.load(g.app() + briefly); err != nil {
			t.Fatal(err)
		}
		if step == "before the answer" {
			if got := g.openQuestions(t); len(got) != 1 || got[0] != ids[0] {
				t.Fatalf("the reload closed the question: %v", got)
			}
			g.answer(t, ids[0], `{"allowed": true, "by": "bo"}`)
		}
	}
	if n := len(g.forge.WriteTokens()); n != 0 {
		t.Errorf("%d write tokens before the push came again", n)
	}
	if out, err := g.push(t, "acme/app", "main"); err != nil || !strings.Contains(out, "this push was approved by bo") {
		t.Fatalf("push again: %v\n%s", err, out)
	}
	// It was for that push. The next one asks, also where its approver is another.
	g.commit(t, "next")
	if out, err := g.push(t, "acme/app", "main"); err == nil || !strings.Contains(out, "approval pending") {
		t.Errorf("the next push: %v\n%s", err, out)
	}
	g.answer(t, g.openQuestions(t)[0], `{"allowed": true, "by": "bo"}`)
	other := strings.Replace(briefly, `"by": "queue"`, `"by": "http", "url": "unix//nonexistent/a.sock"`, 1)
	if err := g.load(g.app() + other); err != nil {
		t.Fatal(err)
	}
	if out, err := g.push(t, "acme/app", "main"); err == nil || !strings.Contains(out, "the approver cannot be reached") {
		t.Errorf("what the queue allowed is allowed by another approver: %v\n%s", err, out)
	}
}

// TestSessionTakesItsAnswersAlong: with a session end its open questions and its
// answers, and the next one with its name gets neither.
func TestSessionTakesItsAnswersAlong(t *testing.T) {
	g := newGatewayTest(t, briefly)
	g.listening(t)
	if out, err := g.push(t, "acme/app", "main"); err == nil {
		t.Fatal(out)
	}
	answered := g.openQuestions(t)[0]
	g.commit(t, "another question")
	if out, err := g.push(t, "acme/app", "main"); err == nil || len(g.openQuestions(t)) != 2 {
		t.Fatal(out)
	}
	g.answer(t, answered, `{"allowed": true}`)
	if status, body := g.control(t, http.MethodDelete, "/v1/sessions/push", ""); status != http.StatusNoContent {
		t.Fatalf("close: %d %s", status, body)
	}
	for deadline := time.Now().Add(20 * time.Second); len(g.openQuestions(t)) != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a question outlives its session")
		}
	}
	status, body := g.control(t, http.MethodPut, "/v1/sessions/push", `{"id": "push", "agent": "ada", "repository": "github.com/acme/app",
		"networkEnabled": false, "linkedRepositories": ["github.com/acme/linked"], "listen": {"network": "tcp"}}`)
	if status != http.StatusCreated {
		t.Fatalf("open again: %d %s", status, body)
	}
	if err := json.Unmarshal([]byte(body), &g.session); err != nil {
		t.Fatal(err)
	}
	for _, commit := range []string{"HEAD~1", "HEAD"} {
		out, err := g.git(t, g.clone, "push", "http://git.internal/github.com/acme/app.git", commit+":refs/heads/main")
		if err == nil || !strings.Contains(out, "approval pending") {
			t.Errorf("%s by the next session of the name: %v\n%s", commit, err, out)
		}
	}
}

// TestTwoGateways: questions of both come to the one queue, and each gateway holds
// to its own rules and approver.
func TestTwoGateways(t *testing.T) {
	g := newGatewayTest(t, briefly)
	questions := g.stream(t, "/v1/approvals/events")
	strict := strings.Replace(briefly, `"refs": ["main"]`, `"refs": ["main", "more"]`, 1)
	servers := fmt.Sprintf(`"git": %s, "more": %s`, g.server("sandbox/git", g.app()+briefly), g.server("sandbox/more", strict))
	if err := g.loadServers(servers); err != nil {
		t.Fatal(err)
	}
	to := func(host, ref string) (string, error) {
		proxy := "http.http://" + host + "/.proxy=http://" + g.session.Session.HTTP
		return g.git(t, g.clone, "-c", proxy, "push", "http://"+host+"/github.com/acme/app.git", "HEAD:refs/heads/"+ref)
	}
	if out, err := to("git.internal", "more"); err == nil || !strings.Contains(out, "no rule allows push to more") {
		t.Errorf("the first: %v\n%s", err, out)
	}
	if out, err := to("more.internal", "more"); err == nil || !strings.Contains(out, "approval pending") {
		t.Fatalf("the second: %v\n%s", err, out)
	}
	id, _ := next(t, questions, "asked")["id"].(string)
	g.answer(t, id, `{"allowed": true, "by": "bo"}`)
	// What one of them allowed does not open the other, whose rules refuse.
	if out, err := to("git.internal", "more"); err == nil || !strings.Contains(out, "no rule allows push to more") {
		t.Errorf("the first, again: %v\n%s", err, out)
	}
	// The second has no token: that is its own reason, behind the yes.
	if out, err := to("more.internal", "more"); err == nil || !strings.Contains(out, "approved by bo") || !strings.Contains(out, "no token source") {
		t.Errorf("the second, again: %v\n%s", err, out)
	}
}

// TestRuleSource is a push under the host's own rules: let through, narrowed, and
// refused once the host is gone. What it said is in the event.
func TestRuleSource(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	events := g.stream(t, "/v1/events?session=push")
	var verdict atomic.Value
	verdict.Store("allow")
	path := filepath.Join(g.run, "rules.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	host := &httptest.Server{Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Session, Agent, Repository string
			Updates                    []struct{ Ref string }
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Session != "push" || q.Agent != "ada" || q.Repository != "github.com/acme/app" {
			t.Errorf("asked: %+v, %v", q, err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"version":1,"updates":[{"ref":%q,"verdict":%q}]}`, q.Updates[0].Ref, verdict.Load())
	})}}
	host.Start()
	t.Cleanup(host.Close)
	if err := g.load(g.app() + fmt.Sprintf(`"rules": {"from": "http", "url": "unix/%s"}, `, path) + agentRules); err != nil {
		t.Fatal(err)
	}
	if out, err := g.push(t, "acme/app", "agent/x"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ref := next(t, events, lease.EventPush)["refs"].([]any)[0].(map[string]any)
	if ref["host"] != "allow" || ref["verdict"] != "allow" || ref["rule"] != "push agent/**" {
		t.Errorf("event: %v", ref)
	}
	verdict.Store("deny")
	if out, err := g.push(t, "acme/app", "agent/y"); err == nil || !strings.Contains(out, "(Control Center policy: push to agent/y is denied (rule source))") {
		t.Errorf("denied: %v\n%s", err, out)
	}
	host.Close()
	if out, err := g.push(t, "acme/app", "agent/y"); err == nil || !strings.Contains(out, "(Control Center policy: the rule source cannot be reached)") {
		t.Errorf("gone: %v\n%s", err, out)
	}
	if n := len(g.forge.WriteTokens()); n != 1 {
		t.Errorf("%d write tokens", n)
	}
	// Rules from nowhere are no configuration.
	if err := g.load(g.app() + `"rules": {"from": "http", "url": "http://192.0.2.1/"}, ` + agentRules); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("loading gives %v", err)
	}
}
