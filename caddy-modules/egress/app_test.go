package egress_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "postern/caddy-modules/egress"
	"postern/caddy-modules/session/lease"
)

func init() { caddy.RegisterModule(eventSink{}) }

// eventSink is a handler of Caddy's events that keeps what it is given.
type eventSink struct{}

var sunk struct {
	sync.Mutex
	events []caddy.Event
}

func (eventSink) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.test_sink", New: func() caddy.Module { return new(eventSink) }}
}

func (eventSink) Handle(_ context.Context, e caddy.Event) error {
	sunk.Lock()
	defer sunk.Unlock()
	sunk.events = append(sunk.events, e)
	return nil
}

// await waits until an event of that name was handled, and returns its data.
func await(t *testing.T, name string) map[string]any {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		sunk.Lock()
		for _, e := range sunk.events {
			if e.Name() == name {
				sunk.Unlock()
				return e.Data
			}
		}
		sunk.Unlock()
	}
	t.Fatalf("no event %s", name)
	return nil
}

// running is a Caddy in this process.
type running struct{ run string }

// prepare makes a run directory and stops Caddy at the end of the test.
func prepare(t *testing.T) running {
	t.Helper()
	run, err := os.MkdirTemp("/tmp", "postern-test-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("POSTERN_RUN", run)
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(run)
	})
	return running{run}
}

func start(t *testing.T, app, more string) running {
	t.Helper()
	r := prepare(t)
	if err := r.load(app, more); err != nil {
		t.Fatal(err)
	}
	return r
}

// load loads the app with the given settings; more is spliced in beside it.
func (r running) load(app, more string) error {
	return caddy.Load(fmt.Appendf(nil, `{
		"admin": {"listen": "unix/%s/admin.sock|0600", "config": {"persist": false}},
		"logging": {"logs": {"default": {"level": "FATAL"}}},
		"apps": {"egress": %s%s}
	}`, r.run, app, more), true)
}

func (r running) ask(t *testing.T, socket, method, path, body string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(r.run, socket))
	}}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://postern"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// open opens a session and returns its HTTP proxy.
func (r running) open(t *testing.T, id string) string {
	t.Helper()
	status, body := r.ask(t, "control.sock", http.MethodPut, "/v1/sessions/"+id, fmt.Sprintf(`{"id": %q, "listen": {"network": "tcp"}}`, id))
	var answer lease.Answer
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusCreated {
		t.Fatalf("open %s: %d %s", id, status, body)
	}
	return answer.Session.HTTP
}

// connect asks the proxy for a tunnel and returns the answer.
func connect(t *testing.T, proxy, target string) *http.Response {
	t.Helper()
	conn, err := net.DialTimeout("tcp", proxy, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// TestEvents follows a refusal to an operator's event handler.
func TestEvents(t *testing.T) {
	sunk.Lock()
	sunk.events = nil
	sunk.Unlock()
	r := start(t, `{}`, `, "events": {"subscriptions": [{"events": ["egress_denied", "egress_session_open", "egress_session_close"], "handlers": [{"handler": "test_sink"}]}]}`)
	proxy := r.open(t, "events")
	if data := await(t, "egress_session_open"); data["session"] != "events" {
		t.Errorf("session_open: %v", data)
	}
	resp := connect(t, proxy, "evil.example:443")
	if resp.StatusCode != http.StatusForbidden || resp.Header.Get("Postern-Reason") != "not_allowed" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	data := await(t, "egress_denied")
	if data["session"] != "events" || data["target"] != "evil.example:443" || data["code"] != "not_allowed" {
		t.Errorf("denied: %v", data)
	}
	if at, ok := data["time"].(time.Time); !ok || time.Since(at) > time.Minute {
		t.Errorf("denied at %v", data["time"])
	}
	r.ask(t, "control.sock", http.MethodDelete, "/v1/sessions/events", "")
	await(t, "egress_session_close")
}

// TestOwnListenersAreNoDestination lists the appliance's own addresses in its
// policy, as an attacker with a say in it would: none opens. The admin endpoint is
// on TCP here, where Caddy has it by default.
func TestOwnListenersAreNoDestination(t *testing.T) {
	adminPort, sitePort, latePort := freePort(t), freePort(t), freePort(t)
	app := `{"policies": {"agent": {"allow": [{"host": "127.0.0.1"}, {"host": "localhost", "ports": [%d, %d], "private": true}]}}}`
	r := prepare(t)
	load := func(ports ...int) error {
		servers := make([]string, 0, len(ports))
		for i, p := range ports {
			servers = append(servers, fmt.Sprintf(`"s%d": {"listen": [":%d"], "automatic_https": {"disable": true}, "routes": [{"handle": [{"handler": "static_response", "body": "site"}]}]}`, i, p))
		}
		return caddy.Load(fmt.Appendf(nil, `{
			"admin": {"listen": "127.0.0.1:%d", "config": {"persist": false}},
			"logging": {"logs": {"default": {"level": "FATAL"}}},
			"apps": {"egress": %s, "http": {"servers": {%s}}}
		}`, adminPort, fmt.Sprintf(app, adminPort, sitePort), strings.Join(servers, ", ")), true)
	}
	if err := load(sitePort); err != nil {
		t.Fatal(err)
	}
	proxy, other := r.open(t, "one"), r.open(t, "two")
	refused := func(target string) {
		t.Helper()
		if resp := connect(t, proxy, target); resp.StatusCode != http.StatusForbidden || resp.Header.Get("Postern-Reason") != "own_listener" {
			t.Errorf("%s: %s %s", target, resp.Status, resp.Header.Get("Postern-Reason"))
		}
	}
	for _, port := range []int{adminPort, sitePort} {
		refused(fmt.Sprintf("127.0.0.1:%d", port))
		refused(fmt.Sprintf("[::ffff:127.0.0.1]:%d", port))
	}
	refused(other)
	refused(proxy)

	// What a reload opens is closed to sandboxes from its first moment on.
	if err := load(sitePort, latePort); err != nil {
		t.Fatal(err)
	}
	refused(fmt.Sprintf("127.0.0.1:%d", latePort))
	refused(fmt.Sprintf("127.0.0.1:%d", adminPort))
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// TestPortsStay holds that the range of ports cannot change under the sessions.
func TestPortsStay(t *testing.T) {
	r := start(t, `{"sessions": {"ports": "21000-21099"}}`, "")
	if err := r.load(`{"sessions": {"ports": "22000-22099"}}`, ""); err == nil || !strings.Contains(err.Error(), "restart it for 22000-22099") {
		t.Errorf("another range: %v", err)
	}
	if err := r.load(`{"sessions": {"ports": "21000-21099"}, "sni": "log"}`, ""); err != nil {
		t.Errorf("the same range: %v", err)
	}
	if proxy := r.open(t, "range"); !strings.HasPrefix(proxy, "127.0.0.1:210") {
		t.Errorf("the session's proxy is %s", proxy)
	}
}

func TestBadSettings(t *testing.T) {
	r := start(t, `{}`, "")
	for _, c := range []struct{ name, app, more, want string }{
		{"ports", `{"sessions": {"ports": "9"}}`, "", "9"},
		{"sni", `{"sni": "maybe"}`, "", "want enforce, log or off"},
		{"timeout", `{"timeouts": {"dial": -1}}`, "", "dial is negative"},
		{"upstream", `{"dns": {"upstreams": ["resolver.example"]}}`, "", "named by address"},
		{"local", `{"local_hosts": ["10.0.0.1"]}`, "", "not an address"},
		{"rule", `{"policies": {"a": {"allow": [{"host": "*"}]}}}`, "", "policies.a.allow:1"},
		{"unknown field of a rule", `{"policies": {"a": {"allow": [{"host": "a.example", "port": 443}]}}}`, "", "port"},
		{"name of a listener", `{}`, `, "http": {"servers": {"s": {"listen": ["sandbox/Git_1:80"]}}}`, "is not a name"},
		{"ports of a listener", `{}`, `, "http": {"servers": {"s": {"listen": ["sandbox/git:80-81"]}}}`, "no ports"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := r.load(c.app, c.more); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if status, _ := r.ask(t, "control.sock", http.MethodGet, "/v1/state", ""); status != http.StatusOK {
				t.Errorf("the control API answers %d after it", status)
			}
		})
	}
}

func TestAdmin(t *testing.T) {
	r := start(t, `{}`, "")
	if status, body := r.ask(t, "admin.sock", http.MethodGet, "/egress/sessions", ""); status != http.StatusOK || body != "[]\n" {
		t.Errorf("none: %d %q", status, body)
	}
	r.open(t, "seen")
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{http.MethodGet, "/egress/sessions", http.StatusOK, `"id":"seen"`},
		{http.MethodGet, "/egress/sessions/seen", http.StatusOK, `"policy":"agent"`},
		{http.MethodGet, "/egress/sessions/unseen", http.StatusNotFound, `no session`},
		{http.MethodPost, "/egress/sessions", http.StatusMethodNotAllowed, "GET is"},
		{http.MethodPut, "/egress/sessions/seen", http.StatusMethodNotAllowed, "GET and DELETE are"},
		{http.MethodDelete, "/egress/sessions/seen", http.StatusNoContent, ""},
		{http.MethodDelete, "/egress/sessions/seen", http.StatusNotFound, "no session"},
	} {
		if status, body := r.ask(t, "admin.sock", c.method, c.path, "{}"); status != c.status || !strings.Contains(body, c.body) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
}

// Interface guard
var _ caddyevents.Handler = eventSink{}
