package egress_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func init() { caddy.RegisterModule(new(lateWriter)) }

// lateWriter is an app that adds a line to a list when the app egress has read it and
// has not started: what an approval for always does that comes with a reload.
type lateWriter struct {
	File string `json:"file"`
	Line string `json:"line"`
}

func (*lateWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "test_late_writer", New: func() caddy.Module { return new(lateWriter) }}
}

func (w *lateWriter) Provision(ctx caddy.Context) error {
	if _, err := ctx.App("egress"); err != nil {
		return err
	}
	next := w.File + ".next"
	if err := os.WriteFile(next, []byte(w.Line), 0o600); err != nil {
		return err
	}
	return os.Rename(next, w.File)
}

func (*lateWriter) Start() error { return nil }
func (*lateWriter) Stop() error  { return nil }

// A line that came to a list for approvals while a configuration was loaded holds once
// that one governs.
func TestStartCatchesUpWithApprovals(t *testing.T) {
	r := prepare(t)
	const host, port = "127.0.0.9", "9" // where nobody listens: 502 once it is allowed
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "approved.list")
	if err := os.WriteFile(list, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	app := fmt.Sprintf(`{"policies": {"agent": {"ask": [{"host": %q, "ports": [%s]}], "allow_files": [%q], "always_list": %[3]q}}}`, host, port, list)
	if err := r.load(app, fmt.Sprintf(`, "test_late_writer": {"file": %q, "line": "%s %s\n"}`, list, host, port)); err != nil {
		t.Fatal(err)
	}
	proxy := r.open(t, "a")
	status := 0
	for deadline := time.Now().Add(10 * time.Second); status != http.StatusBadGateway && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp := connect(t, proxy, host+":"+port)
		_ = resp.Body.Close()
		status = resp.StatusCode
	}
	if status != http.StatusBadGateway {
		t.Errorf("what was approved meanwhile: %d", status)
	}
}
