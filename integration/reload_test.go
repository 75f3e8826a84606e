package integration_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"postern/caddy-modules/session/lease"
)

// echoEnv makes this test binary an echo server and nothing else.
const echoEnv = "POSTERN_TEST_ECHO"

func init() {
	if os.Getenv(echoEnv) != "" {
		serveEcho()
		os.Exit(0)
	}
	caddy.RegisterModule(failApp{})
	caddy.RegisterModule(failLoader{})
}

// failApp fails where it is told to. It stands for any other app of a
// configuration and is a part of this test binary alone.
type failApp struct {
	At string `json:"at"` // provision, validate or start
}

// onFailedStart is called by a failApp that is about to fail its Start: the
// apps that started before it are up at that moment.
var onFailedStart atomic.Pointer[func()]

var errFail = errors.New("failing as told")

func (failApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fail", New: func() caddy.Module { return new(failApp) }}
}

func (f *failApp) Provision(caddy.Context) error { return f.fail("provision") }
func (f *failApp) Validate() error               { return f.fail("validate") }
func (f *failApp) Stop() error                   { return nil }

func (f *failApp) Start() error {
	if probe := onFailedStart.Load(); f.At == "start" && probe != nil {
		(*probe)()
	}
	return f.fail("start")
}

func (f *failApp) fail(at string) error {
	if f.At == at {
		return errFail
	}
	return nil
}

// failLoader is a configuration loader that fails. Caddy calls it when every app
// has started, and then takes the whole configuration back without Stop.
type failLoader struct{}

func (failLoader) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.config_loaders.fail", New: func() caddy.Module { return new(failLoader) }}
}

func (failLoader) LoadConfig(caddy.Context) ([]byte, error) { return nil, errFail }

// reloads is a Caddy in this process with one open session, whose policy is
// replaced again and again.
type reloads struct {
	run      string
	proxy    string // the session's HTTP proxy
	kept     string // an upstream that every policy allows
	revoked  string // one that only the first policy allows
	added    string // one that only later policies allow
	keptConn *tunnel
}

// config is a configuration that allows the given addresses; more is spliced
// into the object of apps, and admin into that of the admin endpoint.
func (r *reloads) config(more, admin string, allow ...string) string {
	rules := make([]string, 0, len(allow))
	for _, a := range allow {
		host, port, _ := net.SplitHostPort(a)
		rules = append(rules, fmt.Sprintf(`{"host": %q, "ports": [%s]}`, host, port))
	}
	return fmt.Sprintf(`{
		"admin": {"listen": "unix/%s/admin.sock|0600"%s},
		"logging": {"logs": {"default": {"level": "ERROR"}}},
		"apps": {
			"egress": {"policies": {"agent": {"allow": [%s]}}}%s
		}
	}`, r.run, admin, strings.Join(rules, ", "), more)
}

func newReloads(t *testing.T) *reloads {
	t.Helper()
	r := &reloads{run: runDir(t), kept: echoProcess(t), revoked: echoProcess(t), added: echoProcess(t)}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	noPersist := `, "config": {"persist": false}`
	if err := caddy.Load([]byte(r.config("", noPersist, r.kept, r.revoked)), true); err != nil {
		t.Fatal(err)
	}
	got, err := control(t, r.run, http.MethodPut, "/v1/sessions/reload", `{"id": "reload", "policy": "agent", "listen": {"network": "tcp"}}`)
	if err != nil || got.status/100 != 2 {
		t.Fatalf("open a session: %+v %v", got, err)
	}
	var opened lease.Answer
	if err := json.Unmarshal([]byte(got.body), &opened); err != nil || opened.Session.HTTP == "" {
		t.Fatalf("no listener in %s (%v)", got.body, err)
	}
	r.proxy = opened.Session.HTTP
	r.keptConn = connect(t, r.proxy, r.kept)
	return r
}

func (r *reloads) load(more, admin string, allow ...string) error {
	if admin == "" {
		admin = `, "config": {"persist": false}`
	}
	return caddy.Load([]byte(r.config(more, admin, allow...)), true)
}

// TestFailedReloads goes through the ways a reload can fail. After each the old
// configuration rules as if nothing had been tried: what it allows can be
// reached, what the new one would have allowed cannot, and the tunnel that the
// new one would have revoked is open.
func TestFailedReloads(t *testing.T) {
	r := newReloads(t)
	doomed := connect(t, r.proxy, r.revoked)
	for _, c := range []struct {
		name, more, admin string
		before, after     func(t *testing.T)
		want              string
		times             int
	}{
		{name: "unknown field of the app", more: `, "http": {"serves": {}}`, want: "unknown field"},
		{name: "unknown app", more: `, "egresss": {}`, want: "unknown module"},
		{name: "another app fails to provision", more: `, "fail": {"at": "provision"}`, want: errFail.Error()},
		{name: "another app fails to validate", more: `, "fail": {"at": "validate"}`, want: errFail.Error()},
		// Apps start in random order; twenty times is enough to see ours before
		// the other one and after it.
		{name: "another app fails to start", more: `, "fail": {"at": "start"}`, want: errFail.Error(), times: 20},
		{
			name:   "our own app fails to start",
			before: func(t *testing.T) { chmod(t, r.run, 0o750) }, //nolint:thelper // one line
			after:  func(t *testing.T) { chmod(t, r.run, 0o700) }, //nolint:thelper // one line
			want:   "lets other users in",
		},
		{
			name: "a missing app key",
			more: `, "http": {"servers": {"git": {"listen": ["sandbox/git:80"], "routes": [{"handle": [{"handler": "git_gateway", "token": {"from": "github_app", "app_id": "1", "key_file": "/nonexistent/app.pem"}}]}]}}}`,
			want: "read app key",
		},
		{name: "after all apps have started", admin: `, "config": {"persist": false, "load": {"module": "fail"}}`, want: errFail.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.before != nil {
				c.before(t)
			}
			orders := map[bool]int{}
			probe := func() { orders[dialThrough(t, r.proxy, r.added) == http.StatusOK]++ }
			onFailedStart.Store(&probe)
			defer onFailedStart.Store(nil)
			for range max(c.times, 1) {
				err := r.load(c.more, c.admin, r.kept, r.added)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("reload gives %v, want %q", err, c.want)
				}
			}
			if c.after != nil {
				c.after(t)
			}
			if c.times > 0 && (orders[true] == 0 || orders[false] == 0) {
				t.Errorf("our app started before the other %d times and after it %d times; both must be seen", orders[true], orders[false])
			}
			r.ruledByFirst(t)
			doomed.echo(t, c.name)
		})
	}
	t.Run("unknown field inside the app", func(t *testing.T) {
		bad := strings.Replace(r.config("", "", r.kept, r.added), `"policies"`, `"polices"`, 1)
		if err := caddy.Load([]byte(bad), true); err == nil || !strings.Contains(err.Error(), "polices") {
			t.Fatalf("reload gives %v", err)
		}
		r.ruledByFirst(t)
		doomed.echo(t, "field")
	})

	// Then a good one: the tunnel that it revokes is cut, the other is not.
	if err := r.load("", "", r.kept, r.added); err != nil {
		t.Fatal(err)
	}
	if !doomed.closed(t) {
		t.Error("the tunnel to a host that left the list is open")
	}
	r.keptConn.echo(t, "kept")
	if got := dialThrough(t, r.proxy, r.revoked); got != http.StatusForbidden {
		t.Errorf("the revoked host gives %d", got)
	}
	if got := dialThrough(t, r.proxy, r.added); got != http.StatusOK {
		t.Errorf("the added host gives %d", got)
	}
}

// ruledByFirst checks that the first configuration governs and that every door
// shows the session.
func (r *reloads) ruledByFirst(t *testing.T) {
	t.Helper()
	for upstream, want := range map[string]int{r.kept: http.StatusOK, r.revoked: http.StatusOK, r.added: http.StatusForbidden} {
		if got := dialThrough(t, r.proxy, upstream); got != want {
			t.Errorf("%s gives %d, want %d", upstream, got, want)
		}
	}
	r.keptConn.echo(t, "first")
	if got, err := control(t, r.run, http.MethodGet, "/v1/sessions/reload", ""); err != nil || got.status != http.StatusOK {
		t.Errorf("control API: %+v %v", got, err)
	}
	// The admin server of the rejected configuration stays up. It must show
	// what is, not what was rejected.
	got, err := unixRequest(t, filepath.Join(r.run, "admin.sock"), http.MethodGet, "/egress/sessions", "")
	if err != nil || !strings.Contains(got.body, `"reload"`) {
		t.Errorf("admin endpoint: %+v %v", got, err)
	}
}

// TestReloadsUnderLoad reloads thirty times, good and bad ones mixed, while
// clients use the control API, open connections and keep one open.
func TestReloadsUnderLoad(t *testing.T) {
	r := newReloads(t)
	const counter = "postern_egress_denied_total"
	before := metric(t, r.run, counter)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	counts := map[string]*load{"control requests": {}, "connections": {}, "refusals": {}, "echoes": {}}
	hammer := func(name string, once func() error) {
		l := counts[name]
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				l.add(once())
			}
		})
	}
	hammer("control requests", func() error {
		got, err := control(t, r.run, http.MethodGet, "/v1/sessions", "")
		if err == nil && (got.status != http.StatusOK || !strings.Contains(got.body, `"reload"`)) {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	hammer("connections", func() error {
		status, err := tryConnect(r.proxy, r.kept)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
	hammer("refusals", func() error {
		status, err := tryConnect(r.proxy, "127.0.0.1:9")
		if err == nil && status != http.StatusForbidden {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
	hammer("echoes", func() error { return r.keptConn.tryEcho("load") })

	for i := range 30 {
		more := ""
		if i%3 == 2 {
			more = []string{`, "fail": {"at": "start"}`, `, "fail": {"at": "provision"}`}[i%2]
		}
		allow := []string{r.kept, r.added}
		if i%2 == 0 {
			allow = []string{r.kept, r.revoked}
		}
		if err := r.load(more, "", allow...); (err == nil) != (more == "") {
			t.Fatalf("reload %d: %v", i, err)
		}
		time.Sleep(20 * time.Millisecond) // let the clients see this one
	}
	close(stop)
	wg.Wait()
	for name, l := range counts {
		if l.done == 0 || len(l.failed) > 0 {
			t.Errorf("%s: %d of %d failed, as in %v", name, len(l.failed), l.done, l.failed[:min(3, len(l.failed))])
		}
		t.Logf("%s: %d", name, l.done)
	}
	// Repeated refusals are reported together; the end of the session brings
	// what is still counted.
	if got, err := control(t, r.run, http.MethodDelete, "/v1/sessions/reload", ""); err != nil || got.status != http.StatusNoContent {
		t.Fatalf("close the session: %+v %v", got, err)
	}
	want, deadline := before+float64(counts["refusals"].done), time.Now().Add(5*time.Second)
	for after := 0.0; after < want; after = metric(t, r.run, counter) {
		if time.Now().After(deadline) {
			t.Fatalf("%s went from %v to %v, want %v: it was reset by a reload", counter, before, after, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// load counts what a client did.
type load struct {
	done   int
	failed []error
}

func (l *load) add(err error) {
	l.done++
	if err != nil {
		l.failed = append(l.failed, err)
	}
}

// TestReloadTakesThePolicyAway removes a session's policy and then the app: the
// session must close its doors, not open them.
func TestReloadTakesThePolicyAway(t *testing.T) {
	r := newReloads(t)
	other := strings.Replace(r.config("", "", r.kept), `"agent"`, `"other"`, 1)
	if err := caddy.Load([]byte(other), true); err != nil {
		t.Fatal(err)
	}
	if !r.keptConn.closed(t) {
		t.Error("a tunnel outlived the policy of its session")
	}
	if got := dialThrough(t, r.proxy, r.kept); got != http.StatusForbidden {
		t.Errorf("without its policy the session gives %d", got)
	}
	// The policy is back: so is the session.
	if err := r.load("", "", r.kept); err != nil {
		t.Fatal(err)
	}
	if got := dialThrough(t, r.proxy, r.kept); got != http.StatusOK {
		t.Errorf("with its policy back the session gives %d", got)
	}
	none := fmt.Sprintf(`{"admin": {"listen": "unix/%s/admin.sock|0600", "config": {"persist": false}}}`, r.run)
	if err := caddy.Load([]byte(none), true); err != nil {
		t.Fatal(err)
	}
	if _, err := tryConnect(r.proxy, r.kept); err == nil {
		t.Error("the session's listener outlived the app")
	}
	for _, name := range []string{"control.sock", "lease.sock"} {
		if _, err := os.Lstat(filepath.Join(r.run, name)); err == nil {
			t.Errorf("%s outlived the app", name)
		}
	}
	got, err := unixRequest(t, filepath.Join(r.run, "admin.sock"), http.MethodGet, "/egress/sessions", "")
	if err != nil || got.status != http.StatusNotFound {
		t.Errorf("the admin route answers %+v %v", got, err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// metric sums a counter over its labels.
func metric(t *testing.T, run, name string) float64 {
	t.Helper()
	got, err := unixRequest(t, filepath.Join(run, "admin.sock"), http.MethodGet, "/metrics", "")
	if err != nil || got.status != http.StatusOK {
		t.Fatalf("metrics: %+v %v", got, err)
	}
	sum := 0.0
	for line := range strings.Lines(got.body) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			var v float64
			if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}

// tunnel is an open CONNECT.
type tunnel struct {
	mu   sync.Mutex // guards conn: one echo at a time
	conn net.Conn
}

// connect opens a tunnel through the proxy, or fails the test.
func connect(t *testing.T, proxy, target string) *tunnel {
	t.Helper()
	conn, status, err := openTunnel(proxy, target)
	if err != nil || status != http.StatusOK {
		t.Fatalf("CONNECT %s: status %d, %v", target, status, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &tunnel{conn: conn}
}

func openTunnel(proxy, target string) (net.Conn, int, error) {
	conn, err := net.DialTimeout("tcp", proxy, 10*time.Second)
	if err != nil {
		return nil, 0, err
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return nil, 0, errors.Join(err, conn.Close())
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, 0, errors.Join(err, conn.Close())
	}
	_ = resp.Body.Close()
	if br.Buffered() > 0 {
		return nil, 0, errors.Join(errors.New("bytes before the first of the tunnel"), conn.Close())
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, resp.StatusCode, nil
}

// tryConnect opens a tunnel and closes it again.
func tryConnect(proxy, target string) (int, error) {
	conn, status, err := openTunnel(proxy, target)
	if err == nil {
		_ = conn.Close()
	}
	return status, err
}

func dialThrough(t *testing.T, proxy, target string) int {
	t.Helper()
	status, err := tryConnect(proxy, target)
	if err != nil {
		t.Errorf("CONNECT %s: %v", target, err)
	}
	return status
}

func (c *tunnel) tryEcho(text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c.conn, text); err != nil {
		return err
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c.conn, buf); err != nil {
		return err
	}
	if string(buf) != text {
		return fmt.Errorf("sent %q, got %q", text, buf)
	}
	return nil
}

func (c *tunnel) echo(t *testing.T, text string) {
	t.Helper()
	if err := c.tryEcho(text); err != nil {
		t.Errorf("the tunnel broke: %v", err)
	}
}

// closed waits for the other side to end the tunnel.
func (c *tunnel) closed(t *testing.T) bool {
	t.Helper()
	_ = c.conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err := c.conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// echoServer answers every connection with what it sends.
func echoServer(t *testing.T) string {
	t.Helper()
	ln := listenTCP(t)
	go echoOn(ln)
	return ln.Addr().String()
}

func echoOn(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}()
	}
}

// echoProcess is an echo server in a process of its own. Where Caddy runs in the
// test's process this is needed: what that process listens on is the appliance's
// own, and no rule opens a way there.
func echoProcess(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), echoEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // it ends with its standard input
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the echo server says nothing: %v", err)
	}
	return strings.TrimSpace(addr)
}

func serveEcho() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	go echoOn(ln)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// originServer is an HTTP server whose every answer is "origin".
func originServer(t *testing.T) string {
	t.Helper()
	ln := listenTCP(t)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "origin")
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return ln.Addr().String()
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// fetchThrough gets / of the origin over a tunnel, and returns what it said or
// the error. It may run beside the test.
func fetchThrough(t *testing.T, proxy, origin string) string {
	t.Helper()
	conn, status, err := openTunnel(proxy, origin)
	if err != nil || status != http.StatusOK {
		return fmt.Sprintf("status %d, %v", status, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", origin); err != nil {
		return err.Error()
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
