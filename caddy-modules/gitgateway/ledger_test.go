package gitgateway_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"postern/caddy-modules/session/lease"
	"postern/integration/fakegithub"
)

// ledger is what the file in the run directory says.
func (g *gatewayTest) ledger(t *testing.T) string {
	t.Helper()
	path := filepath.Join(g.run, "tokens.ledger")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("ledger: %v %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLedger follows the tokens of a session and of a push into the ledger and
// out of it, over reloads that succeed and that fail.
func TestLedger(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	if !strings.Contains(g.ledger(t), g.session.ReadToken) {
		t.Error("the session's token is not recorded")
	}
	if err := g.load(`"token": {"from": "vault"}, ` + agentRules); err == nil {
		t.Fatal("loaded")
	}
	if err := g.load(g.app() + agentRules); err != nil {
		t.Fatal(err)
	}
	g.forge.SetFaults(fakegithub.Faults{SlowReport: 2 * time.Second})
	pushed := make(chan error, 1)
	go func() { _, err := g.push(t, "acme/app", "agent/x"); pushed <- err }()
	for deadline := time.Now().Add(20 * time.Second); !g.landed(t, "acme/app") && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	write := g.forge.WriteTokens()
	if len(write) != 1 || !strings.Contains(g.ledger(t), write[0].Value) {
		t.Errorf("the push's token is not recorded: %+v", write)
	}
	if err := <-pushed; err != nil || strings.Contains(g.ledger(t), write[0].Value) {
		t.Errorf("after the push (%v) its token is still recorded", err)
	}
	if status, body := g.control(t, http.MethodDelete, "/v1/sessions/push", ""); status != http.StatusNoContent {
		t.Fatalf("close the session: %d %s", status, body)
	}
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	// The next process writes the file anew, with what stands: nothing.
	if err := g.load(g.app() + agentRules); err != nil {
		t.Fatal(err)
	}
	if text := g.ledger(t); text != "" {
		t.Errorf("the ledger holds %q", text)
	}
}

// TestLedgerOfAKilledProcess starts on what a killed appliance left: a push's
// token, that of a run whose launcher is gone, that of an API session, and that of
// a run whose launcher is on its way back.
func TestLedgerOfAKilledProcess(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	launcher := exec.Command("sleep", "60")
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	gone := lease.ProcessOf(launcher.Process.Pid)
	_ = launcher.Process.Kill()
	_ = launcher.Wait()
	read := map[string]string{"contents": "read", "pull_requests": "write"}
	var text strings.Builder
	issue := func(permissions map[string]string, access string, holder lease.Process) string {
		t.Helper()
		value, err := g.forge.IssueToken(permissions, "acme/app")
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(map[string]any{
			"token": value, "host": "github.com", "repository": "acme/app", "access": access, "holder": holder,
			"time": time.Now(), "expires": time.Now().Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
		return value
	}
	push := issue(map[string]string{"contents": "write"}, "write", "")
	dead := issue(read, "read", gone)
	api := issue(read, "read", "")
	back := issue(read, "read", lease.ProcessOf(os.Getpid()))
	if err := os.WriteFile(filepath.Join(g.run, "tokens.ledger"), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.load(g.app() + agentRules); err != nil {
		t.Fatal(err)
	}
	for what, value := range map[string]string{"the push's": push, "that of the run that is gone": dead, "the API session's": api} {
		revoked(t, g.forge, what, value)
	}
	if token, _ := g.forge.Token(back); token.Revoked() {
		t.Fatal("the token of the run that lives is revoked")
	}

	// Its launcher comes back, and ends.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := lease.Lend(ctx, filepath.Join(g.run, "lease.sock"), lease.Hello{
		Spec:   lease.Spec{ID: "run", Repository: "github.com/acme/app"},
		Resume: &lease.Resume{ReadToken: back, Born: "before"},
	}, lease.Pair{HTTP: listen(t), SOCKS: listen(t)})
	if err != nil {
		t.Fatal(err)
	}
	if l.Answer().ReadToken != back {
		t.Error("the run was given another token")
	}
	if token, _ := g.forge.Token(back); token.Revoked() {
		t.Error("the token is revoked while the run lives")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	revoked(t, g.forge, "that of the run that came back", back)
}

// revoked waits for the end of a token.
func revoked(t *testing.T, forge *fakegithub.Server, what, value string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if token, ok := forge.Token(value); ok && token.Revoked() {
			return
		}
		if time.Now().After(end) {
			t.Errorf("a token lives on: %s", what)
			return
		}
	}
}

// TestLedgerIsNotOurs refuses to start on a ledger that others may have written.
func TestLedgerIsNotOurs(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(g.run, "tokens.ledger")
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	if err := g.load(g.app() + agentRules); err == nil || !strings.Contains(err.Error(), "lets other users in") {
		t.Errorf("loading gives %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.load(g.app() + agentRules); err != nil {
		t.Errorf("after it was put right: %v", err)
	}
}

// listen makes a listener as a launcher does.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}
