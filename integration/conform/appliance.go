package main

import (
	"bytes"
	"context"
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
	"syscall"
	"time"

	"postern/caddy-modules/session/lease"
)

// appliance is the caddy process under test, and its two doors.
type appliance struct {
	cmd     *exec.Cmd
	out     *logTail
	ended   chan struct{} // closed when the process has ended
	control *http.Client
	admin   *http.Client
}

// startAppliance runs the binary with a configuration, in a run directory of
// its own below dir, and returns when its control API answers.
func startAppliance(binary, dir, config string) (*appliance, error) {
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write Caddyfile: %w", err)
	}
	a := &appliance{out: &logTail{}, ended: make(chan struct{})}
	a.cmd = exec.Command(binary, "run", "--config", file, "--adapter", "caddyfile")
	// Nothing of the caller's environment: a proxy variable or a home directory
	// with settings must not change what is tested.
	a.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "POSTERN_RUN=" + run}
	a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr = dir, a.out, a.out
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the appliance: %w", err)
	}
	go func() {
		_ = a.cmd.Wait()
		close(a.ended)
	}()
	a.control = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(run, "control.sock"))
		},
	}}
	a.admin = &http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := a.call(http.MethodGet, "/v1/state", nil, nil)
		if err == nil {
			return a, nil
		}
		select {
		case <-a.ended:
			return nil, a.died()
		default:
		}
		if time.Now().After(deadline) {
			a.stop()
			return nil, fmt.Errorf("wait for the appliance's control API: %w\n%s", err, a.out.text())
		}
	}
}

// stop ends the process, and waits for it.
func (a *appliance) stop() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-time.After(5 * time.Second):
		_ = a.cmd.Process.Kill()
		<-a.ended
	}
}

// died says that the process has ended by itself, with its last words.
func (a *appliance) died() error {
	return fmt.Errorf("the appliance has ended (%v):\n%s", a.cmd.ProcessState, a.out.text())
}

// refused is an answer of the control or admin API other than success.
type refused struct {
	status  int
	message string
}

func (e *refused) Error() string { return fmt.Sprintf("%d: %s", e.status, e.message) }

// code is the word of the control API for why it refused, "" where there is none.
func (e *refused) code() string {
	var said struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal([]byte(e.message), &said)
	return said.Code
}

// call makes one request to the control API.
func (a *appliance) call(method, path string, body, into any) error {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://control"+path, r)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return roundTrip(a.control, req, into)
}

func roundTrip(c *http.Client, req *http.Request, into any) error {
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return &refused{resp.StatusCode, strings.TrimSpace(string(raw))}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// post sends a Caddyfile to the admin endpoint: to be loaded, or only adapted,
// which reads every rule and changes nothing.
func (a *appliance) post(path, config string) error {
	// A load replaces the endpoint as well, and the one before may have taken a
	// connection that it then drops. Neither request does more the second time.
	var err error
	for range 5 {
		var req *http.Request
		req, err = http.NewRequestWithContext(context.Background(), http.MethodPost,
			fmt.Sprintf("http://127.0.0.1:%d%s", adminPort, path), strings.NewReader(config))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "text/caddyfile")
		req.Header.Set("Cache-Control", "must-revalidate")
		err = roundTrip(a.admin, req, nil)
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, io.EOF) {
			return err
		}
		select {
		case <-a.ended:
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
	return err
}

func (a *appliance) load(config string) error {
	if err := a.post("/load", config); err != nil {
		return fmt.Errorf("load configuration: %w", err)
	}
	return nil
}

// accepts reports whether a configuration can be read; why not is in err, and
// fatal trouble too.
func (a *appliance) accepts(config string) (ok bool, why string, err error) {
	err = a.post("/adapt", config)
	if r := (*refused)(nil); errors.As(err, &r) {
		return false, r.message, nil
	}
	return err == nil, "", err
}

// loads is accepts with a real load.
func (a *appliance) loads(config string) (ok bool, why string, err error) {
	err = a.post("/load", config)
	if r := (*refused)(nil); errors.As(err, &r) {
		return false, r.message, nil
	}
	return err == nil, "", err
}

// sessionInfo is what the cases need to know of a session.
type sessionInfo struct {
	HTTP    string `json:"http"`
	SOCKS   string `json:"socks"`
	Tunnels int    `json:"tunnels"`
	Denied  uint64 `json:"denied"`
}

// open makes a session with listeners on these ports of 127.0.0.1.
func (a *appliance) open(id, policy string, rules []string, httpPort, socksPort uint16) (sessionInfo, error) {
	spec := map[string]any{
		"id": id, "policy": policy,
		"listen": map[string]any{
			"network": "tcp", "http": "127.0.0.1:" + itoa(httpPort), "socks": "127.0.0.1:" + itoa(socksPort),
		},
	}
	if len(rules) > 0 {
		spec["egressAllowlist"] = rules
	}
	if err := a.call(http.MethodPut, "/v1/sessions/"+id, spec, nil); err != nil {
		return sessionInfo{}, err
	}
	return a.session(id)
}

// brings says whether a session may bring a rule.
func (a *appliance) brings(rule string) (bool, error) {
	const id = "trial"
	_, err := a.open(id, "base", []string{rule}, otherPort, otherPort+1)
	if r := (*refused)(nil); errors.As(err, &r) && r.code() == lease.CodeBadRule {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bring the rule %q: %w", rule, err)
	}
	return true, a.close(id)
}

func (a *appliance) session(id string) (info sessionInfo, err error) {
	err = a.call(http.MethodGet, "/v1/sessions/"+id, nil, &info)
	return info, err
}

func (a *appliance) close(id string) error {
	return a.call(http.MethodDelete, "/v1/sessions/"+id, nil, nil)
}

// logTail keeps the last lines of the appliance's log.
type logTail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if over := len(l.buf) - 8<<10; over > 0 {
		l.buf = l.buf[over:]
	}
	return len(p), nil
}

func (l *logTail) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
