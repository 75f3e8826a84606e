//go:build linux

package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"postern/integration/netlab"
)

const (
	binEnv   = "POSTERN_TEST_BIN"   // folder of the binaries under test, where there is no Go
	worldEnv = "POSTERN_TEST_WORLD" // folder that both sides share
	allEnv   = "POSTERN_CLIENTS"    // "all": a missing client is a failure
)

// The test binary is the gRPC client, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == grpcCommand {
		os.Exit(grpcClient(os.Args[2]))
	}
	os.Exit(m.Run())
}

// TestClients is the matrix. The launcher runs here, as a user starts it; the appliance
// and the origins in a lab, to which the sockets of the appliance lead.
func TestClients(t *testing.T) {
	if netlab.Inside() {
		serveWorld(t, os.Getenv(worldEnv))
		return
	}
	w := newWorld(t, binaries(t))
	for _, c := range matrix() {
		t.Run(c.name, func(t *testing.T) {
			why := c.missing()
			if why != "" && c.absent == "" && os.Getenv(allEnv) == "all" {
				t.Fatalf("it is not there: %s", why)
			}
			if why != "" {
				t.Skipf("SKIPPED, NOT PASSED: %s", why)
			}
			c.try(t, w)
		})
	}
	w.end(t)
}

// binaries builds what is under test, as it is shipped, and says where it is.
func binaries(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(binEnv); dir != "" {
		return dir
	}
	dir := t.TempDir()
	for name, pkg := range map[string]string{"caddy": "postern/caddy-modules/caddy", "postern": "postern/launcher"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", pkg, err, out)
		}
	}
	return dir
}
