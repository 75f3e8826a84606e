package session

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
)

// What a patch refuses is cut, what it leaves goes on, and a PUT compares with what
// holds now.
func TestPatchCutsWhatItRefuses(t *testing.T) {
	r := newRegistry(t)
	kept, gone := echo(t), echo(t)
	r.Push(generation(t, r, rule(kept)))
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	info := open(t, r, lease.Spec{ID: "a", EgressAllowlist: []string{rule(gone)}})
	stays, ends := connect(t, "tcp", info.HTTP, kept), connect(t, "tcp", info.HTTP, gone)
	if stays.status != http.StatusOK || ends.status != http.StatusOK {
		t.Fatalf("%d, %d", stays.status, ends.status)
	}
	if status, body := call(t, c, "PATCH", "/v1/sessions/a", `{"egressAllowlist":[]}`); status != http.StatusOK || strings.Contains(body, "egressAllowlist") {
		t.Fatalf("PATCH: %d %s", status, body)
	}
	ends.cut(t)
	if !stays.alive() {
		t.Error("a tunnel that the policy allows was cut")
	}
	if again := connect(t, "tcp", info.HTTP, gone); again.status != http.StatusForbidden {
		t.Errorf("a new one: %d", again.status)
	}
	if status, body := call(t, c, "PUT", "/v1/sessions/a", `{}`); status != http.StatusOK {
		t.Errorf("PUT of what holds now: %d %s", status, body)
	}
	if status, _ := call(t, c, "PUT", "/v1/sessions/a", `{"egressAllowlist":["x.example"]}`); status != http.StatusConflict {
		t.Errorf("PUT of what held before: %d", status)
	}
	// Off and on again.
	if _, err := r.Patch("a", Patch{NetworkEnabled: new(false)}); err != nil {
		t.Fatal(err)
	}
	stays.cut(t)
	if off := connect(t, "tcp", info.HTTP, kept); off.reason != "network_off" {
		t.Errorf("with the network off: %d %s", off.status, off.reason)
	}
	// A reload keeps to what was patched.
	r.Push(generation(t, r, rule(kept)))
	if off := connect(t, "tcp", info.HTTP, kept); off.reason != "network_off" {
		t.Errorf("after a reload: %d %s", off.status, off.reason)
	}
	if _, err := r.Patch("a", Patch{NetworkEnabled: new(true)}); err != nil {
		t.Fatal(err)
	}
	if on := connect(t, "tcp", info.HTTP, kept); on.status != http.StatusOK {
		t.Errorf("with the network on: %d %s", on.status, on.reason)
	}
}

// A patch that is wrong in one thing changes nothing.
func TestPatchThatFailsChangesNothing(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r, "a.example"))
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	open(t, r, lease.Spec{ID: "a", EgressAllowlist: []string{"mine.example"}})
	before, _ := r.Lookup("a")
	for _, step := range []struct {
		body   string
		status int
		code   string
	}{
		{`{"policy":"nobody","egressAllowlist":[]}`, 422, lease.CodeUnknownPolicy},
		{`{"networkEnabled":false,"egressAllowlist":["http://x"]}`, 422, lease.CodeBadRule},
		{`{"networkEnabled":false,"egressAllowlist":[" "]}`, 400, lease.CodeBadRequest},
		{`{"networkEnabled":false,"repository":"github.com/acme/app"}`, 400, lease.CodeBadRequest},
		{`{"networkEnabled":null}`, 400, lease.CodeBadRequest},
		{`{"policy":"other"`, 400, lease.CodeBadRequest},
		{`{"policy":"` + strings.Repeat("x", lease.MaxMessage) + `"}`, 413, lease.CodeTooLarge},
	} {
		status, body := call(t, c, "PATCH", "/v1/sessions/a", step.body)
		if status != step.status || !strings.Contains(body, `"code":"`+step.code+`"`) {
			t.Errorf("%.60s: %d %s, want %d %s", step.body, status, body, step.status, step.code)
		}
	}
	if after, _ := r.Lookup("a"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("now %+v\nbefore %+v", after, before)
	}
	if status, _ := call(t, c, "PATCH", "/v1/sessions/b", `{}`); status != http.StatusNotFound {
		t.Errorf("no such session: %d", status)
	}
}

// Under changes that come one after the other no connection is judged by half of one:
// either policy with either list is what the test lets nobody see.
func TestPatchIsAtomic(t *testing.T) {
	r := newRegistry(t)
	target := echo(t)
	g := generation(t, r)
	deny, err := policy.Compile(policy.Lists{Deny: rules(t, rule(target))}, r.Own)
	if err != nil {
		t.Fatal(err)
	}
	g.Policies["closed"] = deny
	r.Push(g)
	// Under "agent" the target is missing; under "closed" with the session's own rule
	// it is denied. Half of a change would be "agent" with the rule, which opens it.
	info := open(t, r, lease.Spec{ID: "a"})
	var stop atomic.Bool
	var wait sync.WaitGroup
	wait.Go(func() {
		for !stop.Load() {
			if _, err := r.Patch("a", Patch{Policy: new("closed"), EgressAllowlist: new([]string{rule(target)})}); err != nil {
				t.Error(err)
			}
			if _, err := r.Patch("a", Patch{Policy: new("agent"), EgressAllowlist: new([]string{})}); err != nil {
				t.Error(err)
			}
		}
	})
	wait.Go(func() {
		for !stop.Load() {
			r.Push(g)
		}
	})
	seen := map[string]int{}
	for range 300 {
		tun := connect(t, "tcp", info.HTTP, target)
		seen[tun.reason]++
		tun.Close()
	}
	stop.Store(true)
	wait.Wait()
	for reason := range seen {
		if reason != "not_allowed" && reason != "denied" {
			t.Errorf("judged as %q: half of a change was seen", reason)
		}
	}
}

// A grant opens what nothing allows, for as long as it lasts, and outlives a reload.
func TestGrantOpensAndEnds(t *testing.T) {
	r := newRegistry(t)
	target := echo(t)
	r.Push(generation(t, r))
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	info := open(t, r, lease.Spec{ID: "a"})
	status, body := call(t, c, "POST", "/v1/sessions/a/grants", `{"allow":["`+rule(target)+`"],"by":"ann","reason":"it is needed"}`)
	var given Grant
	if err := json.Unmarshal([]byte(body), &given); err != nil || status != http.StatusCreated || given.ID == "" || given.By != "ann" || !given.Expires.IsZero() {
		t.Fatalf("POST: %d %s", status, body)
	}
	r.Push(generation(t, r))
	tun := connect(t, "tcp", info.HTTP, target)
	if tun.status != http.StatusOK {
		t.Fatalf("granted: %d %s", tun.status, tun.reason)
	}
	if status, body = call(t, c, "GET", "/v1/sessions/a/grants", ""); status != 200 || !strings.Contains(body, `"id":"`+given.ID+`"`) {
		t.Errorf("GET: %d %s", status, body)
	}
	if status, body = call(t, c, "GET", "/v1/sessions/a/policy", ""); status != 200 || !strings.Contains(body, `"source":"grant `+given.ID+` (ann)"`) {
		t.Errorf("the policy: %d %s", status, body)
	}
	if status, body = call(t, c, "DELETE", "/v1/sessions/a/grants/"+given.ID, ""); status != http.StatusNoContent {
		t.Errorf("DELETE: %d %s", status, body)
	}
	tun.cut(t)
	if status, _ = call(t, c, "DELETE", "/v1/sessions/a/grants/"+given.ID, ""); status != http.StatusNotFound {
		t.Errorf("DELETE again: %d", status)
	}

	// One that runs out does so by itself, and cuts as well.
	short, err := r.Grant("a", GrantRequest{Allow: []string{rule(target)}, Seconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	if short.Expires.IsZero() || short.ID == given.ID {
		t.Errorf("granted %+v", short)
	}
	if tun = connect(t, "tcp", info.HTTP, target); tun.status == http.StatusOK {
		tun.cut(t)
	}
	eventually(t, "its end", func() bool { left, err := r.Grants("a"); return err == nil && len(left) == 0 })

	// And with the session: the next one with the id has none.
	if _, err := r.Grant("a", GrantRequest{Allow: []string{rule(target)}, Seconds: 3600}); err != nil {
		t.Fatal(err)
	}
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	open(t, r, lease.Spec{ID: "a"})
	if left, err := r.Grants("a"); err != nil || len(left) != 0 {
		t.Errorf("the next session has %v (%v)", left, err)
	}
}

// A grant beats no deny, no always-deny, no class of addresses and no network that is
// off.
func TestGrantOpensNoDeny(t *testing.T) {
	r := newRegistry(t)
	g := generation(t, r)
	set, err := policy.Compile(policy.Lists{AlwaysDeny: rules(t, "never.example"), Deny: rules(t, "denied.example")}, r.Own)
	if err != nil {
		t.Fatal(err)
	}
	g.Policies["agent"] = set
	r.Push(g)
	info := open(t, r, lease.Spec{ID: "a"})
	if _, err := r.Grant("a", GrantRequest{Allow: []string{"never.example", "denied.example", "169.254.169.254", "0.0.0.0/0"}}); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"never.example:443": "always_denied", "denied.example:443": "denied",
		"169.254.169.254:80": "always_denied", "10.0.0.1:443": "not_allowed", info.HTTP: "own_listener",
	} {
		if tun := connect(t, "tcp", info.HTTP, target); tun.reason != want {
			t.Errorf("%s: %d %s, want %s", target, tun.status, tun.reason, want)
		}
	}
	if _, err := r.Patch("a", Patch{NetworkEnabled: new(false)}); err != nil {
		t.Fatal(err)
	}
	if tun := connect(t, "tcp", info.HTTP, "9.9.9.9:443"); tun.reason != "network_off" {
		t.Errorf("with the network off: %s", tun.reason)
	}
}

func TestGrantsAreBounded(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	open(t, r, lease.Spec{ID: "a"})
	for name, q := range map[string]GrantRequest{
		"nothing":           {},
		"negative time":     {Allow: []string{"a.example"}, Seconds: -1},
		"for ever and more": {Allow: []string{"a.example"}, Seconds: 1 << 40},
		"control character": {Allow: []string{"a.example"}, By: "a\nb"},
		"a long name":       {Allow: []string{"a.example"}, By: strings.Repeat("a", 257)},
		"many rules":        {Allow: slices.Repeat([]string{"a.example"}, 65)},
	} {
		if _, err := r.Grant("a", q); codeOf(err) != lease.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Grant("a", GrantRequest{Allow: []string{"a.example", "*"}}); codeOf(err) != lease.CodeBadRule {
		t.Errorf("a rule that does not parse: %v", err)
	}
	for range maxGrants {
		if _, err := r.Grant("a", GrantRequest{Allow: []string{"a.example"}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Grant("a", GrantRequest{Allow: []string{"a.example"}}); codeOf(err) != lease.CodeConflict {
		t.Errorf("one too many: %v", err)
	}
}

// Every line in force is named with its place.
func TestPolicyNamesEveryLine(t *testing.T) {
	r := newRegistry(t)
	g := generation(t, r)
	set, err := policy.Compile(policy.Lists{
		AlwaysDeny: rules(t, "never.example"), Deny: rules(t, "denied.example"), Allow: rules(t, "a.example", "*.b.example 8443"),
		Ask: rules(t, "maybe.example"),
	}, r.Own)
	if err != nil {
		t.Fatal(err)
	}
	g.Policies["agent"] = set
	r.Push(g)
	open(t, r, lease.Spec{ID: "a", EgressAllowlist: []string{"mine.example 22"}})
	e, err := r.Policy("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		list []RuleAt
		rule RuleAt
	}{
		{e.AlwaysDeny, RuleAt{"never.example", "test.list:1"}},
		{e.AlwaysDeny, RuleAt{"169.254.169.254", "built-in"}},
		{e.Deny, RuleAt{"denied.example", "test.list:1"}},
		{e.Allow, RuleAt{"*.b.example 8443", "test.list:2"}},
		{e.Allow, RuleAt{"mine.example 22", "session"}},
		{e.Ask, RuleAt{"maybe.example", "test.list:1"}},
	} {
		if !slices.Contains(want.list, want.rule) {
			t.Errorf("%v is not among %v", want.rule, want.list)
		}
	}
	if e.Policy != "agent" || !e.Enforce || !e.Network || e.Default != "deny" || !slices.Equal(e.Local, []string{"git.internal"}) {
		t.Errorf("%+v", e)
	}
	if _, err := r.Policy("b"); codeOf(err) != lease.CodeNotFound {
		t.Errorf("no such session: %v", err)
	}
}

// The text for an agent stays short, whatever the list, and says what there is more.
func TestPrompt(t *testing.T) {
	r := newRegistry(t)
	lines := []string{"one.example"}
	for i := range 2000 {
		lines = append(lines, fmt.Sprintf("host-%d.example 8443", i))
	}
	r.Push(generation(t, r, append(lines, "*.wild.example")...))
	openDoors(t, r)
	open(t, r, lease.Spec{ID: "a"})
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/sessions/a/policy?as=prompt", nil))
	text := w.Body.String()
	if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || len(text) > maxPrompt {
		t.Errorf("%s, %d bytes", w.Header().Get("Content-Type"), len(text))
	}
	if first := strings.Index(text, "- *.wild.example\n"); first < 0 || first > strings.Index(text, "- one.example\n") {
		t.Errorf("wildcards do not come first:\n%s", text)
	}
	for _, want := range []string{" more.\n", "git.internal", "403", "do not try again"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	shown := strings.Count(text, "\n- ")
	if !strings.Contains(text, fmt.Sprintf("and %d more.", 2002-shown)) {
		t.Errorf("%d are shown:\n%s", shown, text[len(text)-600:])
	}
	if _, err := r.Patch("a", Patch{NetworkEnabled: new(false)}); err != nil {
		t.Fatal(err)
	}
	e, _ := r.Policy("a")
	if got := e.Prompt(); !strings.Contains(got, "Everything is refused") || strings.Contains(got, "one.example") {
		t.Errorf("with the network off:\n%s", got)
	}
	w = httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/sessions/a/policy?as=poem", nil))
	if w.Code != http.StatusBadRequest {
		t.Errorf("as=poem: %d", w.Code)
	}
}

// What is left out of a long list of denials is nothing that can be reached.
func TestPromptCountsWhatIsAllowed(t *testing.T) {
	var denied, ask []string
	for i := range maxShown + 50 {
		denied = append(denied, fmt.Sprintf("no-%d.example", i))
		ask = append(ask, fmt.Sprintf("maybe-%d.example", i))
	}
	r := newRegistry(t)
	g := generation(t, r)
	set, err := policy.Compile(policy.Lists{Allow: rules(t, "one.example"), Deny: rules(t, denied...), Ask: rules(t, ask...)}, r.Own)
	if err != nil {
		t.Fatal(err)
	}
	g.Policies["agent"] = set
	r.Push(g)
	open(t, r, lease.Spec{ID: "a"})
	e, err := r.Policy("a")
	if err != nil || e.Omitted != 100 {
		t.Fatalf("%d omitted, %v", e.Omitted, err)
	}
	if text := e.Prompt(); strings.Contains(text, " more.") || !strings.Contains(text, "- one.example\n") || !strings.Contains(text, "For 10050 further hosts") {
		t.Errorf("the text is\n%s", text)
	}
}

// Whatever a body holds, it changes a session whole or not at all, and the answer is a
// known one.
func FuzzPatch(f *testing.F) {
	f.Add(`{"policy":"other","networkEnabled":false,"egressAllowlist":["a.example 443"]}`, false)
	f.Add(`{"egressAllowlist":["*.example private"]}`, false)
	f.Add(`{"limits":{"tunnels":1,"bytes":-1}}`, false)
	f.Add(`{"policy":"","policy":"agent"}`, false)
	f.Add(`{"allow":["a.example 443","10.0.0.0/8 private"],"seconds":600,"by":"x","reason":"y"}`, true)
	f.Add(`{"allow":[],"seconds":-1}`, true)
	r := New(Options{RunDir: runDir(f)})
	defer func() { _ = r.Destruct() }()
	set, err := policy.Compile(policy.Lists{Allow: rules(f, "a.example"), Deny: rules(f, "denied.example")}, r.Own)
	if err != nil {
		f.Fatal(err)
	}
	r.Push(&Generation{Policies: map[string]*policy.Set{"agent": set, "other": set}, DefaultPolicy: "agent"})
	if _, err := r.Open(f.Context(), lease.Spec{ID: "a"}, 0); err != nil {
		f.Fatal(err)
	}
	h := r.Handler()
	denied, err := policy.ParseTarget("denied.example:443", policy.SchemeTLS)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string, grants bool) {
		s := r.find("a")
		before := s.view.Load()
		req := httptest.NewRequest(http.MethodPatch, "/v1/sessions/a", strings.NewReader(body))
		if grants {
			req = httptest.NewRequest(http.MethodPost, "/v1/sessions/a/grants", strings.NewReader(body))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		switch w.Code {
		case http.StatusOK, http.StatusCreated:
			if s.view.Load().set.Decide(denied).Allowed {
				t.Errorf("%q opened what is denied", body)
			}
		case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusConflict:
			if s.view.Load() != before {
				t.Errorf("%q was refused with %d and changed the session", body, w.Code)
			}
		default:
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
		all, _ := r.Grants("a")
		for _, g := range all {
			if err := r.Revoke("a", g.ID); err != nil {
				t.Error(err)
			}
		}
	})
}

// Caps count over every server of a session, the narrowest holds, and neither a reload
// nor a patch forgets what is used.
func TestCapsAreNarrowed(t *testing.T) {
	r := newRegistry(t)
	target := echo(t)
	capped := func(all, mine int) *Generation {
		g := generation(t, r, rule(target))
		g.Limits.Tunnels = all
		g.PolicyCaps = map[string]Caps{"agent": {Tunnels: mine}}
		return g
	}
	first := capped(5, 3)
	r.Push(first)
	info := open(t, r, lease.Spec{ID: "a"})
	other := open(t, r, lease.Spec{ID: "b"})
	limit := func(want int) {
		t.Helper()
		if e, err := r.Policy("a"); err != nil || e.Limits.Tunnels != want {
			t.Errorf("at most %d tunnels (%v), want %d", e.Limits.Tunnels, err, want)
		}
	}
	limit(3)
	if _, err := r.Patch("a", Patch{Limits: &Caps{Tunnels: 2}}); err != nil {
		t.Fatal(err)
	}
	limit(2)
	one, two := connect(t, "tcp", info.HTTP, target), connect(t, "tcp", info.HTTP, target)
	if one.status != http.StatusOK || two.status != http.StatusOK {
		t.Fatalf("%d, %d", one.status, two.status)
	}
	refused := func(when string) {
		t.Helper()
		if tun := connect(t, "tcp", info.HTTP, target); tun.status != http.StatusTooManyRequests || tun.reason != "too_many_tunnels" {
			t.Errorf("%s: %d %s", when, tun.status, tun.reason)
		}
	}
	refused("two are open")
	if tun := connect(t, "tcp", other.HTTP, target); tun.status != http.StatusOK {
		t.Errorf("another session: %d %s", tun.status, tun.reason)
	}
	// A reload with other limits makes a new server: what is open counts on.
	r.Push(capped(4, 0))
	limit(2)
	refused("after a reload")
	if _, err := r.Patch("a", Patch{Limits: &Caps{Tunnels: 99}}); err != nil {
		t.Fatal(err)
	}
	limit(4)
	if _, err := r.Patch("a", Patch{Limits: &Caps{Bytes: -1}}); codeOf(err) != lease.CodeBadRequest {
		t.Errorf("below zero: %v", err)
	}
	if tun := connect(t, "tcp", info.HTTP, target); tun.status != http.StatusOK {
		t.Errorf("a third of four: %d %s", tun.status, tun.reason)
	}
	one.Close()
}
