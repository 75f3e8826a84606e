package integration_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
)

// TestBadInput sends both doors what a careless or hostile host would. Each gets
// an error that says what is wrong, and the sessions are what they were.
func TestBadInput(t *testing.T) {
	r := newReloads(t)
	list := func() string {
		t.Helper()
		got, err := control(t, r.run, http.MethodGet, "/v1/sessions", "")
		if err != nil || got.status != http.StatusOK {
			t.Fatalf("list: %+v %v", got, err)
		}
		return got.body
	}
	before := list()

	for _, c := range []struct {
		name, method, path, body string
		status                   int
		code, message            string
	}{
		{"id with a slash", "PUT", "/v1/sessions/a%2Fb", `{"id": "a/b", "listen": {"network": "tcp"}}`, 400, "bad_request", "session id"},
		{"id with a dot", "PUT", "/v1/sessions/127.0.0.1", `{"id": "127.0.0.1", "listen": {"network": "tcp"}}`, 400, "bad_request", "session id"},
		{"id too long", "PUT", "/v1/sessions/" + strings.Repeat("a", 65), `{"listen": {"network": "tcp"}}`, 400, "bad_request", "session id"},
		{"another id in the body", "PUT", "/v1/sessions/a", `{"id": "b", "listen": {"network": "tcp"}}`, 400, "bad_request", "id"},
		{"unknown field", "PUT", "/v1/sessions/a", `{"id": "a", "egressAllowList": []}`, 400, "bad_request", "egressAllowList"},
		{"field twice", "PUT", "/v1/sessions/a", `{"id": "a", "policy": "agent", "policy": "agent"}`, 400, "bad_request", "policy"},
		{"no JSON", "PUT", "/v1/sessions/a", `id=a`, 400, "bad_request", "decode"},
		{"two values", "PUT", "/v1/sessions/a", `{"id": "a", "listen": {"network": "tcp"}} {}`, 400, "bad_request", "decode"},
		{"unknown policy", "PUT", "/v1/sessions/a", `{"id": "a", "policy": "admin", "listen": {"network": "tcp"}}`, 422, "unknown_policy", "it has agent"},
		{"glued star", "PUT", "/v1/sessions/a", `{"id": "a", "egressAllowlist": ["a*.example"], "listen": {"network": "tcp"}}`, 422, "bad_rule", "glued"},
		{"address elsewhere", "PUT", "/v1/sessions/a", `{"id": "a", "listen": {"network": "tcp", "http": "0.0.0.0:20001"}}`, 400, "bad_request", "127.0.0.1:PORT"},
		{"other content", "PUT", "/v1/sessions/reload", `{"id": "reload", "policy": "agent", "networkEnabled": false, "listen": {"network": "tcp"}}`, 409, "conflict", "networkEnabled"},
		{"no such session", "DELETE", "/v1/sessions/nobody", ``, 404, "not_found", "nobody"},
		{"no such route", "GET", "/v1/session", ``, 404, "not_found", "/v1/session"},
		{"wrong method", "POST", "/v1/sessions/a", `{}`, 405, "method_not_allowed", "PUT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := control(t, r.run, c.method, c.path, c.body)
			if err != nil {
				t.Fatal(err)
			}
			var e lease.Error
			if err := json.Unmarshal([]byte(got.body), &e); err != nil {
				t.Fatalf("%d %q: %v", got.status, got.body, err)
			}
			if got.status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.message) {
				t.Errorf("%d %s: %s", got.status, e.Code, e.Message)
			}
			if after := list(); after != before {
				t.Errorf("the sessions were\n%s and are\n%s", before, after)
			}
		})
	}

	// The same again is no fault: a host that did not hear the answer asks again.
	again, err := control(t, r.run, http.MethodPut, "/v1/sessions/reload", `{"id": "reload", "policy": "agent", "listen": {"network": "tcp"}}`)
	if err != nil || again.status != http.StatusOK || !strings.Contains(again.body, r.proxy) {
		t.Errorf("the same again: %+v %v", again, err)
	}

	t.Run("two launchers with one id", func(t *testing.T) {
		httpLn, socksLn := listenTCP(t), listenTCP(t)
		pair := lease.Pair{HTTP: httpLn, SOCKS: socksLn}
		for _, id := range []string{"reload", "two", "two"} {
			l, err := lease.Lend(t.Context(), filepath.Join(r.run, "lease.sock"), lease.Hello{Spec: lease.Spec{ID: id}}, pair)
			if err == nil {
				if id == "reload" {
					t.Error("took the id of a session of the control API")
				}
				defer l.Close()
				pair = lease.Pair{HTTP: listenTCP(t), SOCKS: listenTCP(t)} // the next one has its own
				continue
			}
			var refused *lease.RefusedError
			if !errors.As(err, &refused) || refused.Code != lease.CodeInUse || !strings.Contains(refused.Message, id) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if got := list(); strings.Count(got, `"id":"two"`) != 1 {
			t.Errorf("sessions: %s", got)
		}
	})
}
