//go:build linux

package world

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Dir is the shared folder, seen from inside.
func Dir() string { return os.Getenv(dirEnv) }

// Ready tells the outside that everything stands.
func Ready(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(Dir(), ready), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Appliance starts caddy with a Caddyfile, waits until it takes leases, and ends it with
// the test.
func Appliance(t *testing.T, caddyfile string) {
	t.Helper()
	file := filepath.Join(Dir(), "Caddyfile")
	if err := os.WriteFile(file, []byte(caddyfile), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(Dir(), "caddy.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(os.Getenv(binEnv), "caddy"), "run", "--adapter", "caddyfile", "--config", file)
	cmd.Env = append(os.Environ(), "POSTERN_RUN="+runDir(Dir()), "HOME="+Dir())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
	})
	for range 600 {
		c, err := net.Dial("unix", filepath.Join(runDir(Dir()), "lease.sock"))
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-done:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the appliance ended:\n%s", text)
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("the appliance does not answer")
}
