//go:build linux

package clients

import (
	"os"
	"testing"

	"postern/integration/netlab"
	"postern/integration/world"
)

// allEnv says "all" where a missing client is a failure.
const allEnv = "POSTERN_CLIENTS"

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
		serveWorld(t, world.Dir())
		return
	}
	w := newWorld(t)
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
	t.Run("unaware of proxies", func(t *testing.T) { tryUnaware(t, w) })
	w.End(t)
}
