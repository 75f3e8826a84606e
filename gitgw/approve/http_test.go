package approve_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postern/gitgw"
	"postern/gitgw/approve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func question(id string) gitgw.Question {
	repo, _ := gitgw.ParseRepo("github.com/acme/app")
	return gitgw.Question{
		ID: id, Time: time.Now(), Session: "s1", Repository: repo,
		Refs: []gitgw.RefVerdict{{Ref: "refs/heads/main", Action: gitgw.ActionUpdate, Verdict: gitgw.Ask, Rule: "ask main", Source: "Caddyfile:4"}},
	}
}

// serve answers questions by a handler, on a Unix socket and on loopback.
func serve(t *testing.T, h http.HandlerFunc) (unix, loopback string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "approve") //nolint:usetesting // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "a.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	over := &httptest.Server{Listener: listener, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	over.Start()
	t.Cleanup(over.Close)
	tcp := httptest.NewServer(h)
	t.Cleanup(tcp.Close)
	return "unix/" + path, tcp.URL + "/ask?x=1"
}

func newHTTP(t *testing.T, address string) *approve.HTTP {
	t.Helper()
	h, err := approve.NewHTTP(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func TestHTTPAsks(t *testing.T) {
	unix, loopback := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID, Session, Repository string
			Refs                    []struct{ Ref, Action, Verdict, Rule, Source string }
		}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &q); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v: %s", r.Method, err, body)
		}
		if q.ID != "q1" || q.Session != "s1" || q.Repository != "github.com/acme/app" || q.Refs[0].Verdict != "ask" || q.Refs[0].Action != "update" || q.Refs[0].Source != "Caddyfile:4" {
			t.Errorf("question %s", body)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, `{"allowed":true,"by":"ada","reason":"fine"}`+"\n")
	})
	for _, address := range []string{unix, loopback} {
		h := newHTTP(t, address)
		answer, err := h.Ask(t.Context(), question("q1"))
		if err != nil || answer != (gitgw.Answer{Allowed: true, By: "ada", Reason: "fine"}) {
			t.Errorf("%s: %+v %v", address, answer, err)
		}
		if !h.Connected() {
			t.Error("not connected")
		}
	}
}

// Whatever is not a clear answer is none.
func TestHTTPAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		kind, body string
		allowed    bool
		want       string // error
	}{
		"no":              {200, "application/json", `{"allowed":false,"reason":"r"}`, false, ""},
		"error status":    {500, "application/json", `{"allowed":true}`, false, "the approver answered 500"},
		"created":         {201, "application/json", `{"allowed":true}`, false, "the approver answered 201"},
		"redirect":        {307, "application/json", `{"allowed":true}`, false, "the approver answered 307"},
		"other type":      {200, "text/html", `{"allowed":true}`, false, "no usable answer"},
		"nothing":         {200, "application/json", ``, false, "no usable answer"},
		"no field":        {200, "application/json", `{"by":"ada"}`, false, "no usable answer"},
		"misspelt":        {200, "application/json", `{"allowed":true,"unless":"x"}`, false, "no usable answer"},
		"a string":        {200, "application/json", `{"allowed":"true"}`, false, "no usable answer"},
		"null":            {200, "application/json", `{"allowed":null}`, false, "no usable answer"},
		"two values":      {200, "application/json", `{"allowed":true}{"allowed":false}`, false, "no usable answer"},
		"too long":        {200, "application/json", `{"allowed":true,"reason":"` + strings.Repeat("x", 70000) + `"}`, false, "no usable answer"},
		"once":            {200, "application/json", `{"allowed":true,"scope":"once"}`, true, ""},
		"for ever":        {200, "application/json", `{"allowed":true,"scope":"always"}`, false, "no usable answer"},
		"white space":     {200, "application/json", " {\"allowed\": true}\n\n", true, ""},
		"not JSON at all": {200, "application/json", `yes`, false, "no usable answer"},
	} {
		t.Run(name, func(t *testing.T) {
			unix, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			answer, err := newHTTP(t, unix).Ask(t.Context(), question("q"))
			if answer.Allowed != c.allowed {
				t.Errorf("allowed %v", answer.Allowed)
			}
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestHTTPUnreachable(t *testing.T) {
	for _, address := range []string{"unix//nonexistent/a.sock", "http://127.0.0.1:1/"} {
		_, err := newHTTP(t, address).Ask(t.Context(), question("q"))
		if err == nil || err.Error() != "the approver cannot be reached" {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A late answer is none, and the program learns that nobody waits any more.
func TestHTTPTimeout(t *testing.T) {
	gone := make(chan struct{}, 2)
	unix, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		gone <- struct{}{}
	})
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := newHTTP(t, unix).Ask(soon, question("q")); err == nil || err.Error() != "the approver did not answer in time" {
		t.Errorf("%v", err)
	}
	<-gone
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := newHTTP(t, unix).Ask(ctx, question("q")); err == nil {
		t.Error("cancelled, yet answered")
	}
	<-gone
}

func TestNewHTTP(t *testing.T) {
	for address, ok := range map[string]bool{
		"unix//run/a.sock": true, "http://127.0.0.1:8080/x": true, "http://[::1]:8080": true, "http://localhost:1": true, "http://LOCALHOST:1": true,
		"http://127.9.9.9:1": true, "unix/relative.sock": false, "unix/": false, "https://127.0.0.1:1": false, "http://example.org": false,
		"http://192.168.1.1:1": false, "http://0.0.0.0:1": false, "http://user:pw@127.0.0.1:1": false, "http://localhost.example": false,
		"http://169.254.169.254/": false, "": false, "127.0.0.1:80": false, "http://[::ffff:127.0.0.1]:1": true, "http://127.1:80": false, "://": false,
	} {
		h, err := approve.NewHTTP(address)
		if (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: %v", address, err)
		}
		if h != nil {
			_ = h.Close()
		}
	}
}

// A question about a host says so, says nothing of refs, and has the scopes that it offers.
func TestHTTPAsksAboutAHost(t *testing.T) {
	unix, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for _, want := range []string{`"kind":"egress"`, `"target":"example.com:443"`, `"proto":"connect"`, `"policy":"agent"`, `"scopes":["once","session"]`} {
			if !strings.Contains(string(body), want) {
				t.Errorf("no %s in %s", want, body)
			}
		}
		if strings.Contains(string(body), "refs") || strings.Contains(string(body), "repository") {
			t.Errorf("a host is no push: %s", body)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"allowed":true,"scope":"session"}`)
	})
	q := gitgw.Question{
		ID: "h", Kind: gitgw.KindEgress, Time: time.Now(), Session: "s", Policy: "agent", Target: "example.com:443", Proto: "connect",
		Scopes: []string{gitgw.ScopeOnce, gitgw.ScopeSession},
	}
	answer, err := newHTTP(t, unix).Ask(t.Context(), q)
	if err != nil || !answer.Allowed || answer.Scope != gitgw.ScopeSession {
		t.Errorf("%+v %v", answer, err)
	}
	if err := q.Accepts(gitgw.Answer{Allowed: true, Scope: gitgw.ScopeAlways}); err == nil || !strings.Contains(err.Error(), "always") {
		t.Errorf("a list that is not there: %v", err)
	}
}
