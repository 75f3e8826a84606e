package gitgateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// hostTest is an appliance whose policy asks about one host.
type hostTest struct {
	gatewayTest
	upstream, list string
}

func newHostTest(t *testing.T) *hostTest {
	t.Helper()
	run, err := os.MkdirTemp("/tmp", "postern-test-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	t.Setenv("POSTERN_RUN", run)
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostTest{upstream: ln.Addr().String(), list: filepath.Join(run, "approved.list")}
	h.run = run
	// What this process listens on as a configuration starts is the appliance's own, and
	// no destination: serve comes after that.
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.list, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// serve makes the host that is asked about, which says nothing.
func (h *hostTest) serve(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp4", h.upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
}

// load has the app's settings and the gateway's.
func (h *hostTest) load(policy, app, gateway string) error {
	_, port, _ := net.SplitHostPort(h.upstream)
	return caddy.Load(fmt.Appendf(nil, `{
		"admin": {"listen": "unix/%s/admin.sock|0600", "config": {"persist": false}},
		"logging": {"logs": {"default": {"level": "FATAL"}}},
		"apps": {
			"egress": {"policies": {"agent": {"ask": [{"host": "127.0.0.1", "ports": [%s]}] %s}}, "local_hosts": ["git.internal"] %s},
			"http": {"servers": {"git": {"listen": ["sandbox/git"], "automatic_https": {"disable": true}, "routes": [{"handle": [{"handler": "git_gateway" %s}]}]}}}
		}
	}`, h.run, port, policy, app, gateway), true)
}

func (h *hostTest) open(t *testing.T, id string) (proxy string) {
	t.Helper()
	status, body := h.control(t, http.MethodPut, "/v1/sessions/"+id, `{"listen": {"network": "tcp"}}`)
	_, after, ok := strings.Cut(body, `"http":"`)
	proxy, _, _ = strings.Cut(after, `"`)
	if status != http.StatusCreated || !ok {
		t.Fatalf("open a session: %d %s", status, body)
	}
	return proxy
}

func (h *hostTest) connect(t *testing.T, proxy string) (status int, reason string) {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", h.upstream, h.upstream)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	return resp.StatusCode, fmt.Sprint(resp.Header)
}

// TestHostApproval asks about a host in each way that an approver can be configured,
// and answers for always: the line is in the list, and the list is in force.
func TestHostApproval(t *testing.T) {
	for name, c := range map[string]struct{ app, gateway string }{
		"the app's own":   {`, "approver": {"by": "queue", "timeout": "20s"}`, ""},
		"the gateway's":   {"", `, "approver": {"by": "queue"}`},
		"one and another": {`, "approver": {"by": "queue"}`, `, "approver": {"by": "http", "url": "http://127.0.0.1:1/"}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostTest(t)
			if err := h.load(fmt.Sprintf(`, "allow_files": [%q], "always_list": %q`, h.list, h.list), c.app, c.gateway); err != nil {
				t.Fatal(err)
			}
			h.serve(t)
			proxy := h.open(t, "a")
			if status, reason := h.connect(t, proxy); status != http.StatusForbidden || !strings.Contains(reason, "ask_nobody") {
				t.Fatalf("nobody listens: %d %s", status, reason)
			}
			questions := h.stream(t, "/v1/approvals?stream")
			answered := make(chan int, 1)
			go func() {
				status, _ := h.connect(t, proxy)
				answered <- status
			}()
			asked := next(t, questions, "asked")
			q, _ := asked["question"].(map[string]any)
			if q["kind"] != "egress" || q["target"] != h.upstream || q["proto"] != "connect" || q["policy"] != "agent" || q["code"] != "ask" ||
				fmt.Sprint(q["scopes"]) != "[once session always]" || q["refs"] != nil || q["repository"] != nil {
				t.Errorf("%v", q)
			}
			path := "/v1/approvals/" + fmt.Sprint(asked["id"])
			if status, body := h.control(t, http.MethodPost, path, `{"allowed": true, "scope": "forever"}`); status != http.StatusBadRequest {
				t.Errorf("%d %s", status, body)
			}
			if status, body := h.control(t, http.MethodPost, path, `{"allowed": true, "scope": "always", "by": "ada"}`); status != http.StatusNoContent {
				t.Errorf("%d %s", status, body)
			}
			if status := <-answered; status != http.StatusOK {
				t.Errorf("after a yes: %d", status)
			}
			text, err := os.ReadFile(h.list)
			if want := strings.Replace(h.upstream, ":", " ", 1) + "\n"; err != nil || !strings.HasSuffix(string(text), ", session a\n"+want) {
				t.Errorf("the list is %q, %v", text, err)
			}
			// The list is loaded when the session needs its grant no more.
			h.until(t, "the list is loaded", func() bool {
				_, body := h.control(t, http.MethodGet, "/v1/sessions/a/grants", "")
				return strings.Contains(body, `"grants":[]`)
			})
			if status, reason := h.connect(t, h.open(t, "b")); status != http.StatusOK {
				t.Errorf("another session: %d %s", status, reason)
			}
			if _, body := h.control(t, http.MethodGet, "/v1/approvals", ""); !strings.Contains(body, `"approvals":[]`) {
				t.Errorf("still asked: %s", body)
			}
		})
	}
}

func (h *hostTest) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 20 s: %s", what)
		}
	}
}

// TestAlwaysListIsChecked refuses a list that would hold for nobody, or that is not the
// operator's alone.
func TestAlwaysListIsChecked(t *testing.T) {
	h := newHostTest(t)
	link := filepath.Join(h.run, "link.list")
	if err := os.Symlink(h.list, link); err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[string]string{
		fmt.Sprintf(`, "always_list": %q`, h.list):                                         "add `list " + h.list + "`",
		fmt.Sprintf(`, "allow_files": [%q], "always_list": %q`, h.list, h.list+"x"):        "add `list",
		fmt.Sprintf(`, "allow_files": [%q], "always_list": %q`, link, link):                "symbolic link",
		fmt.Sprintf(`, "allow_files": [%q], "always_list": %q, "ask": []`, h.list, h.list): "asks about nothing",
	} {
		if err := h.load(policy, "", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", policy, err, want)
		}
	}
	// Two gateways that ask different people, and an app that asks neither.
	one := `, "approver": {"by": "queue"}}, {"handler": "git_gateway", "approver": {"by": "http", "url": "http://127.0.0.1:1/"}`
	if err := h.load("", "", one); err == nil || !strings.Contains(err.Error(), "name the approver of the hosts") {
		t.Error(err)
	}
	if err := h.load("", `, "approver": {"by": "queue"}`, one); err != nil {
		t.Error(err)
	}
}
