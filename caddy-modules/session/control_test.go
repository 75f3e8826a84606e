package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// call does one request at the control socket and returns status and body.
func call(tb testing.TB, c *http.Client, method, path, body string) (int, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, "http://control"+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	if len(data) > 0 && resp.Header.Get("Content-Type") != "application/json" {
		tb.Errorf("%s %s: content type %q", method, path, resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, string(data)
}

func TestControlAPI(t *testing.T) {
	r := newRegistry(t)
	g := generation(t, r)
	g.Broker = newForge()
	r.Push(g)
	openDoors(t, r)
	c := control(t, r.options.RunDir)

	status, body := call(t, c, "PUT", "/v1/sessions/a", `{"policy":"agent","repository":"github.com/acme/app"}`)
	var a lease.Answer
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", status, body)
	}
	if a.Session.ID != "a" || a.ReadToken == "" || a.Born != r.Born() || a.Session.Owner != os.Geteuid() || a.Session.Kind != kindAPI {
		t.Errorf("answer %s", body)
	}
	// Create returns when they accept.
	for _, at := range []string{a.Session.HTTP, a.Session.SOCKS} {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Error(err)
			continue
		}
		conn.Close()
	}
	if again, twice := call(t, c, "PUT", "/v1/sessions/a", `{"id":"a","policy":"agent","repository":"github.com/acme/app"}`); again != http.StatusOK || twice != body {
		t.Errorf("PUT again: %d %s", again, twice)
	}
	if status, body = call(t, c, "GET", "/v1/sessions/a", ""); status != http.StatusOK || strings.Contains(body, "secret") || !strings.Contains(body, `"policy":"agent"`) {
		t.Errorf("GET: %d %s", status, body)
	}
	if status, body = call(t, c, "GET", "/v1/sessions", ""); status != http.StatusOK || !strings.HasPrefix(body, `{"sessions":[{"id":"a"`) {
		t.Errorf("list: %d %s", status, body)
	}
	var state State
	if status, body = call(t, c, "GET", "/v1/state", ""); status != http.StatusOK || json.Unmarshal([]byte(body), &state) != nil {
		t.Errorf("state: %d %s", status, body)
	}
	if state.Born != r.Born() || state.PID != os.Getpid() || state.Sessions != 1 || fmt.Sprint(state.Policies) != "[agent other]" || state.DefaultPolicy != "agent" || state.Ports != DefaultPorts || fmt.Sprint(state.LocalHosts) != "[git.internal]" {
		t.Errorf("state %+v", state)
	}
	if status, body = call(t, c, "DELETE", "/v1/sessions/a", ""); status != http.StatusNoContent || body != "" {
		t.Errorf("DELETE: %d %s", status, body)
	}
	if status, body = call(t, c, "GET", "/v1/sessions", ""); status != http.StatusOK || body != `{"sessions":[]}`+"\n" {
		t.Errorf("empty list: %d %s", status, body)
	}
}

// Every error has a status, a code and a sentence, and changes nothing.
func TestControlErrors(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	if status, body := call(t, c, "PUT", "/v1/sessions/taken", `{}`); status != http.StatusCreated {
		t.Fatal(status, body)
	}
	if _, err := lend(t, filepath.Join(r.options.RunDir, LeaseSocket), lease.Hello{Spec: lease.Spec{ID: "leased"}}, pair(t)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name, method, path, body string
		status                   int
		code, say                string
	}{
		{"no such session", "GET", "/v1/sessions/none", "", 404, "not_found", `"none"`},
		{"delete no session", "DELETE", "/v1/sessions/none", "", 404, "not_found", `"none"`},
		{"empty body", "PUT", "/v1/sessions/a", "", 400, "bad_request", "incomplete"},
		{"not JSON", "PUT", "/v1/sessions/a", "policy=agent", 400, "bad_request", ""},
		{"unknown field", "PUT", "/v1/sessions/a", `{"polcy":"agent"}`, 400, "bad_request", `unknown field "polcy"`},
		{"field twice", "PUT", "/v1/sessions/a", `{"policy":"agent","policy":"other"}`, 400, "bad_request", "twice"},
		{"null", "PUT", "/v1/sessions/a", `{"networkEnabled":null}`, 400, "bad_request", "null"},
		{"trailing", "PUT", "/v1/sessions/a", `{}{}`, 400, "bad_request", "more than one"},
		{"another id", "PUT", "/v1/sessions/a", `{"id":"b"}`, 400, "bad_request", `"b"`},
		{"bad id", "PUT", "/v1/sessions/a.b", `{}`, 400, "bad_request", "session id"},
		{"escaped id", "PUT", "/v1/sessions/a%2Fb", `{}`, 400, "bad_request", "session id"},
		{"long id", "PUT", "/v1/sessions/" + strings.Repeat("a", 65), `{}`, 400, "bad_request", "session id"},
		{"huge body", "PUT", "/v1/sessions/a", `{"agent":"` + strings.Repeat("a", lease.MaxMessage) + `"}`, 413, "too_large", ""},
		{"unknown policy", "PUT", "/v1/sessions/a", `{"policy":"agnet"}`, 422, "unknown_policy", "agent, other"},
		{"bad rule", "PUT", "/v1/sessions/a", `{"egressAllowlist":["bad*.example"]}`, 422, "bad_rule", "egressAllowlist[0]"},
		{"conflict", "PUT", "/v1/sessions/taken", `{"policy":"other"}`, 409, "conflict", "another policy"},
		{"leased", "PUT", "/v1/sessions/leased", `{}`, 409, "in_use", "open already"},
		{"port in use", "PUT", "/v1/sessions/a", `{"listen":{"network":"tcp","http":"127.0.0.1:1"}}`, 503, "unavailable", "ports of sessions"},
		{"wrong method", "POST", "/v1/sessions/a", `{}`, 405, "method_not_allowed", "DELETE, GET, PATCH, PUT"},
		{"wrong method on the list", "DELETE", "/v1/sessions", "", 405, "method_not_allowed", "GET"},
		{"nothing there", "GET", "/v2/sessions", "", 404, "not_found", "/v2/sessions"},
		{"root", "GET", "/", "", 404, "not_found", ""},
		{"events of a bad id", "GET", "/v1/events?session=a%20b", "", 400, "bad_request", "session id"},
	} {
		t.Run(x.name, func(t *testing.T) {
			status, body := call(t, c, x.method, x.path, x.body)
			var e lease.Error
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatalf("%d %q: %v", status, body, err)
			}
			if status != x.status || e.Code != x.code || e.Message == "" || !strings.Contains(e.Message, x.say) {
				t.Errorf("%d %+v", status, e)
			}
		})
	}
	if n := len(r.Snapshot()); n != 2 {
		t.Errorf("%d sessions", n)
	}
}

// A body that does not come is given up.
func TestControlSlowBody(t *testing.T) {
	if testing.Short() {
		t.Skip("waits 5 s for a deadline")
	}
	r := newRegistry(t)
	r.Push(generation(t, r))
	openDoors(t, r)
	c, err := net.Dial("unix", filepath.Join(r.options.RunDir, ControlSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "PUT /v1/sessions/a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
	_ = c.SetDeadline(time.Now().Add(3 * readFor))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// stream reads events from the control socket until the test ends.
func stream(t *testing.T, c *http.Client, query string) (<-chan lease.Event, *http.Response) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://control/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	events := make(chan lease.Event, 1000)
	go func() {
		defer close(events)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			var e lease.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("line %q: %v", lines.Text(), err)
				return
			}
			events <- e
		}
	}()
	return events, resp
}

func TestControlEvents(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	c.Timeout = 0
	all, resp := stream(t, c, "")
	one, _ := stream(t, c, "?session=b")
	if resp.Header.Get("Content-Type") != "application/x-ndjson" || resp.Header.Get("Postern-Born") != r.Born() {
		t.Errorf("headers %v", resp.Header)
	}
	open(t, r, lease.Spec{ID: "a"})
	s := open(t, r, lease.Spec{ID: "b"})
	connect(t, "tcp", s.HTTP, "127.0.0.2:443")
	r.Publish(lease.Event{Type: lease.EventPush, Session: "b", Fields: map[string]any{"verdict": "push"}})
	r.Publish(lease.Event{Type: "reloaded"})
	if err := r.Close("b"); err != nil {
		t.Fatal(err)
	}
	read := func(from <-chan lease.Event, n int) (kinds string) {
		for range n {
			select {
			case e := <-from:
				kinds += e.Type + ":" + e.Session + " "
			case <-time.After(patience):
				t.Fatalf("no event after %s", kinds)
			}
		}
		return kinds
	}
	if got := read(all, 6); got != "session_open:a session_open:b denied:b push:b reloaded: session_close:b " {
		t.Errorf("all: %s", got)
	}
	if got := read(one, 4); got != "session_open:b denied:b push:b session_close:b " {
		t.Errorf("one: %s", got)
	}
	// The end of the process is told, and ends the stream.
	if err := r.Destruct(); err != nil {
		t.Fatal(err)
	}
	if got := read(all, 1); got != "session_close:a " {
		t.Errorf("at the end: %s", got)
	}
	for name, s := range map[string]<-chan lease.Event{"all": all, "one": one} {
		if e, more := <-s; more {
			t.Errorf("%s: %+v after the end", name, e)
		}
	}
}

// A reader that does not read loses events, is told, and slows nobody.
func TestControlSlowReader(t *testing.T) {
	r := newRegistry(t)
	openDoors(t, r)
	c, err := net.Dial("unix", filepath.Join(r.options.RunDir, ControlSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	br := bufio.NewReader(c)
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := strings.Repeat("x", 4<<10)
	start := time.Now()
	for range 3000 {
		r.Publish(lease.Event{Type: "x", Fields: map[string]any{"text": text}})
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("publishing took %v", d)
	}
	if r.hub.dropped.Load() == 0 {
		t.Fatal("12 MB are queued somewhere")
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e lease.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type == lease.EventDropped {
			if e.Fields["count"].(float64) < 1 {
				t.Errorf("dropped %v", e.Fields)
			}
			return
		}
	}
	t.Error("the reader was not told")
}

func TestMount(t *testing.T) {
	r := newRegistry(t)
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	say := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		})
	}
	expect := func(path, want string) {
		t.Helper()
		if _, body := call(t, c, "GET", path, ""); !strings.HasPrefix(body, want) {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
	expect("/v1/approvals", `{"code":"not_found"`)
	old := r.Mount("/v1/approvals/", say("old"))
	expect("/v1/approvals", "old")
	expect("/v1/approvals/7", "old")
	expect("/v1/approvalsx", `{"code":"not_found"`)
	fresh := r.Mount("/v1/approvals", say("new"))
	expect("/v1/approvals/7", "new")
	fresh() // the reload failed
	fresh()
	expect("/v1/approvals/7", "old")
	last := r.Mount("/v1/approvals", say("last"))
	old() // the reload succeeded
	expect("/v1/approvals", "last")
	last()
	expect("/v1/approvals", `{"code":"not_found"`)
	// The control API is not for taking.
	defer r.Mount("/v1/state", say("mine"))()
	expect("/v1/state", `{"born"`)
}

// Handler alone has no idea who asks; sessions then belong to this user.
func TestHandlerAlone(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/v1/sessions/a", strings.NewReader(`{}`)))
	if w.Code != http.StatusCreated {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if info, _ := r.Lookup("a"); info.Owner != os.Geteuid() {
		t.Errorf("owner %d", info.Owner)
	}
	// Behind the check, a request that did not come through the door is nobody's.
	w = httptest.NewRecorder()
	r.checkPeer(r.Handler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/state", nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("without a peer: %d", w.Code)
	}
}

// The token is in no log line, whatever happens to its session.
func TestLogsHoldNoToken(t *testing.T) {
	var mu sync.Mutex
	var buf bytes.Buffer
	log := slog.New(slog.NewJSONHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return buf.Write(p)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := New(Options{RunDir: runDir(t), Log: log})
	defer func() { _ = r.Destruct() }()
	f := newForge()
	upstream := echo(t)
	g := generation(t, r, rule(upstream))
	g.Broker, g.Log = f, log.With(slog.String("generation", "1"))
	r.Push(g)
	path := openDoors(t, r)
	l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a", Repository: "github.com/acme/app"}, Resume: &lease.Resume{ReadToken: "secret-old", Born: "x"}}, pair(t))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, r, lease.Spec{ID: "b", Repository: "github.com/acme/app"})
	tun := connect(t, "tcp", s.HTTP, upstream)
	tun.Close()
	connect(t, "tcp", s.HTTP, "127.0.0.2:443")
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}, Resume: &lease.Resume{ReadToken: "secret-other"}}, pair(t)); err == nil {
		t.Error("two with one id")
	}
	l.Close()
	if err := r.Destruct(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	text := buf.String()
	if strings.Contains(text, "secret") {
		t.Errorf("a token is in the log:\n%s", text)
	}
	for _, want := range []string{`"msg":"session opened"`, `"msg":"decision"`, `"msg":"close"`, `"msg":"session closed"`, `"msg":"lease refused"`, `"generation":"1"`, `"session":"b"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the log has no %s:\n%s", want, text)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Groups and attributes survive the change of the handler below.
func TestLiveHandler(t *testing.T) {
	var a, b bytes.Buffer
	target := slog.Handler(slog.NewTextHandler(&a, nil))
	log := LiveLog(func() slog.Handler { return target }).With(slog.Int("x", 1)).WithGroup("g")
	one, two := log.With(slog.Int("y", 2)), log.With(slog.Int("z", 3))
	one.Info("first")
	target = slog.NewTextHandler(&b, nil)
	two.Info("second")
	if !strings.Contains(a.String(), "msg=first x=1 g.y=2") || !strings.Contains(b.String(), "msg=second x=1 g.z=3") {
		t.Errorf("%q, %q", a.String(), b.String())
	}
	if log.Handler().Enabled(context.Background(), slog.LevelDebug) {
		t.Error("the level of the target is not asked")
	}
}
