package integration_test

import (
	"bytes"
	"context"
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
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// caddyEnv names a caddy binary that is there already, for a test binary that
// runs where there is no Go.
const caddyEnv = "POSTERN_TEST_CADDY"

// buildCaddy returns the caddy command under test: a real process is what can be
// killed.
func buildCaddy(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(caddyEnv); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "caddy")
	cmd := exec.Command("go", "build", "-o", path, "./caddy-modules/caddy")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// appliance is a running `caddy run`.
type appliance struct {
	cmd    *exec.Cmd
	run    string
	output *syncBuffer
	done   chan error
}

// startAppliance runs caddy and waits until it takes sessions.
func startAppliance(t *testing.T, caddy, run, config string) *appliance {
	t.Helper()
	a := &appliance{
		cmd:    exec.Command(caddy, "run", "--config", config),
		run:    run,
		output: new(syncBuffer),
		done:   make(chan error, 1),
	}
	a.cmd.Env = append(os.Environ(), "POSTERN_RUN="+run, "HOME="+run)
	a.cmd.Stdout, a.cmd.Stderr = a.output, a.output
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { a.done <- a.cmd.Wait() }()
	t.Cleanup(func() { a.kill() })
	deadline := time.Now().Add(30 * time.Second)
	for {
		if state, err := control(t, run, http.MethodGet, "/v1/state", ""); err == nil && state.status == http.StatusOK {
			return a
		}
		select {
		case err := <-a.done:
			t.Fatalf("caddy ended: %v\n%s", err, a.output)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("caddy does not answer\n%s", a.output)
		}
	}
}

// kill is kill -9, and waits. It may be called again.
func (a *appliance) kill() {
	_ = a.cmd.Process.Kill()
	err := <-a.done
	a.done <- err // for the next caller
}

// syncBuffer collects a process's output while a test may read it.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// answer is one answer of the control API.
type answer struct {
	status int
	body   string
}

// control makes one request to the control API of the appliance in run.
func control(t *testing.T, run, method, path, body string) (answer, error) {
	t.Helper()
	return unixRequest(t, filepath.Join(run, "control.sock"), method, path, body)
}

func unixRequest(t *testing.T, socket, method, path, body string) (answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://postern"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if path == "/load" {
		req.Header.Set("Content-Type", "text/caddyfile")
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(data)}, err
}

// testCrash kills the appliance during a leased run. Nothing was written down, so
// the run's own half must bring it back: the launcher keeps the listeners, lends
// them again, and what a client asked meanwhile has waited in the kernel.
func testCrash(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	run := runDir(t)
	upstream := originServer(t)
	config := writeConfig(t, run, upstream)

	first := startAppliance(t, caddy, run, config)
	httpLn, socksLn := listenTCP(t), listenTCP(t)
	hello := lease.Hello{Version: lease.Version, PID: os.Getpid(), Spec: lease.Spec{ID: "crash"}}
	held := lend(t, run, hello, httpLn, socksLn)
	born := held.Answer().Born
	if got := fetchThrough(t, httpLn.Addr().String(), upstream); got != "origin" {
		t.Fatalf("before the crash: %q", got)
	}

	first.kill()
	select {
	case <-held.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the lease does not notice the crash")
	}
	// Both sockets lie there, stale, and nobody answers.
	for _, name := range []string{"control.sock", "lease.sock"} {
		if _, err := os.Lstat(filepath.Join(run, name)); err != nil {
			t.Errorf("after kill -9: %v", err)
		}
	}
	if _, err := lease.Lend(t.Context(), filepath.Join(run, "lease.sock"), hello, lease.Pair{HTTP: httpLn, SOCKS: socksLn}); !errors.Is(err, lease.ErrNotRunning) {
		t.Errorf("lend to a dead appliance: %v, want ErrNotRunning", err)
	}

	// A client that knows nothing of all this.
	waiting := make(chan string, 1)
	go func() { waiting <- fetchThrough(t, httpLn.Addr().String(), upstream) }()
	select {
	case got := <-waiting:
		t.Fatalf("answered by nobody: %q", got)
	case <-time.After(300 * time.Millisecond):
	}

	startAppliance(t, caddy, run, config)
	hello.Resume = &lease.Resume{Born: born}
	again := lend(t, run, hello, httpLn, socksLn)
	if again.Answer().Born == born {
		t.Error("the restarted appliance has the age of the first")
	}
	if info := again.Answer().Session; info.HTTP != httpLn.Addr().String() || info.SOCKS != socksLn.Addr().String() {
		t.Errorf("other listeners: %s %s", info.HTTP, info.SOCKS)
	}
	select {
	case got := <-waiting:
		if got != "origin" {
			t.Errorf("the waiting request got %q", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the waiting request was never answered")
	}
}

// testTerminate ends the appliance in order: a live tunnel does not hold it up,
// and no socket is left.
func testTerminate(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	run := runDir(t)
	echo := echoServer(t)
	a := startAppliance(t, caddy, run, writeConfig(t, run, echo))
	httpLn, socksLn := listenTCP(t), listenTCP(t)
	held := lend(t, run, lease.Hello{Version: lease.Version, Spec: lease.Spec{ID: "term"}}, httpLn, socksLn)
	tunnel := connect(t, httpLn.Addr().String(), echo)
	tunnel.echo(t, "alive")

	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-a.done:
		a.done <- nil
		if err != nil {
			t.Errorf("exit: %v\n%s", err, a.output)
		}
	case <-time.After(15 * time.Second):
		t.Fatalf("does not end\n%s", a.output)
	}
	if !tunnel.closed(t) {
		t.Error("the tunnel is open after the end")
	}
	<-held.Done()
	entries, err := os.ReadDir(run)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".sock") {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

// testSecondAppliance starts another one on the same run directory: it must not
// take the sockets of the first, which goes on.
func testSecondAppliance(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	run := runDir(t)
	config := writeConfig(t, run, "127.0.0.1:1")
	startAppliance(t, caddy, run, config)
	cmd := exec.Command(caddy, "run", "--config", config)
	cmd.Env = append(os.Environ(), "POSTERN_RUN="+run, "HOME="+run)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("a second appliance runs on the same directory\n%s", out)
	}
	if !strings.Contains(string(out), "runs already") {
		t.Errorf("refused without a reason:\n%s", out)
	}
	if state, err := control(t, run, http.MethodGet, "/v1/state", ""); err != nil || state.status != http.StatusOK {
		t.Errorf("the first one answers %+v, %v", state, err)
	}
	if list, err := unixRequest(t, filepath.Join(run, "admin.sock"), http.MethodGet, "/egress/sessions", ""); err != nil || list.body != "[]\n" {
		t.Errorf("the first one's admin endpoint answers %+v, %v", list, err)
	}
}

// writeConfig writes a Caddyfile whose only policy allows one address.
func writeConfig(t *testing.T, run, allow string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(allow)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(run, "Caddyfile")
	text := fmt.Sprintf("{\n\tpersist_config off\n\tegress {\n\t\tpolicy agent {\n\t\t\tallow %s %s\n\t\t}\n\t}\n}\n", host, port)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func lend(t *testing.T, run string, h lease.Hello, httpLn, socksLn *net.TCPListener) *lease.Lease {
	t.Helper()
	l, err := lease.Lend(t.Context(), filepath.Join(run, "lease.sock"), h, lease.Pair{HTTP: httpLn, SOCKS: socksLn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
