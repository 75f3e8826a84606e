package session

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/spec"
)

// A host puts its SandboxSpec as it is, and gets a handle (SPEC 74, 86).
func TestPutSandboxSpec(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	const eleven = `{"sessionId":"s-1","workspaceId":"w","agentId":null,"bindMounts":[{"hostPath":"/a","readOnly":false}],"networkEnabled":true,
		"egressAllowlist":["example.com 8443"],"guestWorkdir":"/a/b","mode":"plan","protectedPaths":["/p","**/.env"],"runnerStateDirs":["/r"],"execGrantRoots":["/e"]`
	status, body := call(t, c, "PUT", "/v1/sessions/s-1", eleven+`,"backend":"microvm","policy":"agent"}`)
	var a lease.Answer
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusCreated || a.Handle == nil {
		t.Fatalf("%d %s %v", status, body, err)
	}
	h := a.Handle
	if h.SessionID != "s-1" || h.Backend != "microvm" || h.State != spec.Created || h.Error != "" || h.Details["cwd"] != "/a/b" ||
		h.Details["http"] != a.Session.HTTP || h.Details["socks"] != a.Session.SOCKS || h.Details["http"] == "" || h.Details["policy"] != "agent" {
		t.Errorf("%+v", h)
	}
	if a.Session.Workspace != "w" || strings.Join(a.Session.EgressAllowlist, "") != "example.com 8443" {
		t.Errorf("%+v", a.Session)
	}
	if again, twice := call(t, c, "PUT", "/v1/sessions/s-1", eleven+`,"backend":"microvm","policy":"agent"}`); again != http.StatusOK || twice != body {
		t.Errorf("again: %d %s", again, twice)
	}
	for _, x := range [][2]string{
		{`,"policy":"agent"}`, "backend"},
		{`,"backend":"microvm","policy":"other"}`, "policy"},
		{`,"backend":"microvm","policy":"agent","repository":"github.com/a/b"}`, "repository"},
	} {
		if status, body := call(t, c, "PUT", "/v1/sessions/s-1", eleven+x[0]); status != http.StatusConflict || !strings.Contains(body, "another "+x[1]) {
			t.Errorf("%s: %d %s", x[0], status, body)
		}
	}
	if status, body := call(t, c, "PUT", "/v1/sessions/s-1", strings.Replace(eleven, "plan", "chat", 1)+`,"backend":"microvm","policy":"agent"}`); status != http.StatusConflict || !strings.Contains(body, "another mode") {
		t.Errorf("another mode: %d %s", status, body)
	}
	for body, says := range map[string]string{
		`{"sessionId":"s-2"}`:             `sessionId`,
		`{"mode":"yolo"}`:                 "mode: ",
		`{"protectedPath":["/a"]}`:        `unknown field`,
		`{"backend":"vm"}`:                "want one of microvm, native, none",
		`{"bindMounts":[{"path":"/a"}]}`:  "bindMounts",
		`{"agent":"a","agentId":"b"}`:     "one thing",
		`{"mode":"plan","mode":"review"}`: "twice",
	} {
		if status, got := call(t, c, "PUT", "/v1/sessions/s-3", body); status != http.StatusBadRequest || !strings.Contains(got, says) {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
	// Who says nothing of a sandbox has none that one could vouch for.
	status, body = call(t, c, "PUT", "/v1/sessions/plain", `{}`)
	a = lease.Answer{}
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusCreated || a.Handle == nil || a.Handle.Backend != "none" || a.Handle.State != spec.Created {
		t.Errorf("plain: %d %s", status, body)
	}
}

// SPEC 21: what says that the appliance lives says nothing of sandboxes.
func TestHealth(t *testing.T) {
	r := newRegistry(t)
	openDoors(t, r)
	status, body := call(t, control(t, r.options.RunDir), "GET", "/healthz", "")
	var keys map[string]any
	if err := json.Unmarshal([]byte(body), &keys); err != nil || status != http.StatusOK || len(keys) != 1 || keys["status"] != "ok" {
		t.Errorf("%d %s", status, body)
	}
}
