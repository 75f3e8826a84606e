package gitgw_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/integration/fakegithub"
)

// audited is the JSON of the one record that a push left, with what differs from
// run to run checked and taken out.
func (w *world) audited(i int) map[string]any {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) != i+1 {
		w.t.Fatalf("%d records after push %d", len(w.records), i+1)
	}
	data, err := json.Marshal(w.records[i])
	if err != nil {
		w.t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		w.t.Fatal(err)
	}
	if when, err := time.Parse(time.RFC3339Nano, fields["time"].(string)); err != nil || time.Since(when) > time.Hour || time.Since(when) < 0 {
		w.t.Errorf("time: %v, %v", fields["time"], err)
	}
	if took, _ := fields["durationSeconds"].(float64); took <= 0 {
		w.t.Errorf("durationSeconds: %v", fields["durationSeconds"])
	}
	if fields["session"] != "s1" || fields["agent"] != "agent-7" || fields["workspace"] != "w" || fields["repository"] != "github.com/acme/app" {
		w.t.Errorf("whose: %v", fields)
	}
	for _, name := range []string{"time", "durationSeconds", "session", "agent", "workspace", "repository"} {
		delete(fields, name)
	}
	return fields
}

// TestAudit: one record for each push, whatever became of it, and what each holds.
func TestAudit(t *testing.T) {
	t.Parallel()
	yes := &approver{connected: true, answer: after(0, gitgw.Answer{Allowed: true, By: "ada"}, nil)}
	no := &approver{connected: true, answer: after(0, gitgw.Answer{By: "bo", Reason: "not now"}, nil)}
	w := newWorld(t, rules("push **", "ask rel-*", "deny main"), func(w *world) { w.gateway.Approver = yes })
	minter := w.gateway.Minter
	sent := []string{"packBytes", "objects", "tokenId", "revoked", "upstreamStatus"}
	asked := []string{"question", "approver", "waitedSeconds"}
	codes := map[string]any{
		"refused by a rule": "rule", "refused by an approver": "approval_refused", "nobody to ask": "no_approver",
		"no token": "no_token", "forge fails": "forge_refused", "forge breaks off": "outcome_unknown",
	}
	for i, c := range []struct {
		name, ref, outcome, reason string
		begin                      func()
		code                       int
		fields                     []string // beside outcome, refs and clientAgent
		verdict, rule, result      string
	}{
		{"accepted", "a1", "accepted", "", nil, 0, sent, "allow", "push **", "ok"},
		{"approved", "rel-1", "accepted", "", nil, 0, append(asked, sent...), "ask", "ask rel-*", "ok"},
		{"refused by a rule", "main", "refused", "push to main is denied (Caddyfile:4)", nil, 1, nil, "deny", "deny main", ""},
		{"refused by an approver", "rel-2", "refused", "approval was refused by bo: not now", func() { w.gateway.Approver = no }, 1, asked, "ask", "ask rel-*", ""},
		{"nobody to ask", "rel-3", "refused", "no approver is connected", func() { w.gateway.Approver = nil }, 1, nil, "ask", "ask rel-*", ""},
		{"no token", "a2", "failed", "no token source is configured", func() { w.gateway.Minter = nil }, 1, []string{"objects"}, "allow", "push **", ""},
		{"forge fails", "a3", "failed", "503", func() {
			w.gateway.Minter = minter
			w.hub.SetFaults(fakegithub.Faults{Push: http.StatusServiceUnavailable})
		}, 1, []string{"objects", "tokenId", "revoked", "upstreamStatus"}, "allow", "push **", ""},
		{"forge refuses", "a4", "failed", "unpack", func() { w.hub.SetFaults(fakegithub.Faults{MaxPack: 1}) }, 1, sent, "allow", "push **", "ng"},
		{"forge breaks off", "a5", "unknown", "broke off", func() { w.hub.SetFaults(fakegithub.Faults{AbortReport: true}) }, 1, sent, "allow", "push **", ""},
		{"not revoked", "a6", "accepted", "", func() { w.hub.SetFaults(fakegithub.Faults{Revoke: http.StatusInternalServerError}) }, 0, []string{"packBytes", "objects", "tokenId", "upstreamStatus"}, "allow", "push **", "ok"},
	} {
		if c.begin != nil {
			w.change(c.begin)
		}
		w.commit(w.clone, c.ref+".txt", c.name+"\n")
		head, before := w.head("main"), len(w.writeTokens())
		r := w.git("push", "origin", "main:"+c.ref)
		if (r.code == 0) != (c.code == 0) {
			t.Errorf("%s: exit %d\n%s", c.name, r.code, r.out)
		}
		got := w.audited(i)
		reason, _ := got["reason"].(string)
		if got["outcome"] != c.outcome || !strings.Contains(reason, c.reason) || (reason == "") != (c.reason == "") {
			t.Errorf("%s: %v, %v", c.name, got["outcome"], reason)
		}
		if agent, _ := got["clientAgent"].(string); !strings.HasPrefix(agent, "git/") {
			t.Errorf("%s: client %v", c.name, got["clientAgent"])
		}
		ref := got["refs"].([]any)[0].(map[string]any)
		for name, want := range map[string]string{"ref": "refs/heads/" + c.ref, "new": head, "verdict": c.verdict, "rule": c.rule} {
			if ref[name] != want {
				t.Errorf("%s: %s is %v, want %s", c.name, name, ref[name], want)
			}
		}
		if c.ref != "main" && (ref["old"] != zero || ref["action"] != "create") || c.ref == "main" && ref["action"] != "update" {
			t.Errorf("%s: %v", c.name, ref)
		}
		if source, _ := ref["source"].(string); !strings.HasPrefix(source, "Caddyfile:") {
			t.Errorf("%s: source %v", c.name, ref["source"])
		}
		if result, _ := ref["result"].(string); result != c.result && c.name != "forge breaks off" {
			t.Errorf("%s: result %v", c.name, ref["result"])
		}
		if got["code"] != codes[c.name] {
			t.Errorf("%s: code %v", c.name, got["code"])
		}
		for name := range maps.Keys(got) {
			// How much of a pack a forge takes that fails at once is its own affair.
			none := got[name] == float64(0) || name == "packBytes" && c.name == "forge fails"
			if !none && !slices.Contains([]string{"outcome", "reason", "refs", "clientAgent", "code"}, name) && !slices.Contains(c.fields, name) {
				t.Errorf("%s: holds %s: %v", c.name, name, got[name])
			}
		}
		for _, name := range c.fields {
			if v, ok := got[name]; !ok || v == float64(0) {
				t.Errorf("%s: lacks %s", c.name, name)
			}
		}
		// The token's id is of the one token that was made for it, and not the token.
		made := w.writeTokens()[before:]
		if id, told := got["tokenId"].(string); told != (len(made) == 1) || told && id != idOf(made[0].Value) {
			t.Errorf("%s: token %v of %d", c.name, got["tokenId"], len(made))
		}
		w.hub.SetFaults(fakegithub.Faults{})
	}
}

func idOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// Before and beside a push: a repository that is not the run's, what is no push, and
// a client that goes away each leave their record; the log has the same in a line.
func TestAuditOfNoPush(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	w.git("push", w.url+"github.com/acme/nobody.git", "main:x").want(t, 128)
	resp := w.post("00zz", nil)
	_ = resp.Body.Close()
	w.git("push", "origin", "main:y").want(t, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	var outcomes []gitgw.Outcome
	for _, r := range w.records {
		outcomes = append(outcomes, r.Outcome)
	}
	if want := []gitgw.Outcome{gitgw.Refused, gitgw.Malformed, gitgw.Accepted}; !slices.Equal(outcomes, want) {
		t.Fatalf("outcomes %v, want %v", outcomes, want)
	}
	if r := w.records[0]; r.Repository.FullName() != "acme/nobody" || r.TokenID != "" || !strings.Contains(r.Reason, "not this run's repository") {
		t.Errorf("foreign: %+v", r)
	}
	id := w.records[2].Refs[0].New
	for _, want := range []string{
		"push.outcome=refused", "push.outcome=malformed", "push.outcome=accepted", "push.agent=agent-7", "push.workspace=w",
		"allow create refs/heads/y " + zero + ".." + id, "at Caddyfile:2", "forge ok", "push.token_id=" + w.records[2].TokenID,
	} {
		if !strings.Contains(w.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, w.log.String())
		}
	}
}
