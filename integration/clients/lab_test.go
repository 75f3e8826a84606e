//go:build linux

package clients

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"postern/integration/netlab"
	"postern/integration/world"
)

// authorityFile is what certificates are checked by, in the worktree.
const authorityFile = "ca.pem"

// config allows one host, SSH to it included, one at a port of its own, and the
// forge's API.
const config = `{
	persist_config off
	auto_https off
	egress {
		default_policy agent
		policy agent {
			allow allowed.example 80 443 22
			allow elsewhere.example 8443
			allow api.github.com
		}
		dns 9.9.9.9
	}
}
`

// serveWorld is the far side: it serves until stdin ends.
func serveWorld(t *testing.T, dir string) {
	t.Helper()
	netlab.Run(t, func(*netlab.Lab) {
		repository := filepath.Join(dir, "tiny.git")
		o := startOrigin(t, registries(t, repository))
		startSSH(t, repository)
		dns, err := netlab.ListenDNS(netip.MustParseAddr("9.9.9.9"))
		if err != nil {
			t.Fatal(err)
		}
		defer dns.Close()
		dns.SetDefault(func(string) netlab.Answer { return netlab.Addrs("93.184.216.34") })
		world.Appliance(t, config)
		if err := os.WriteFile(filepath.Join(dir, "home", "tree", authorityFile), o.ca.pem, 0o644); err != nil {
			t.Fatal(err)
		}
		world.Ready(t)
		_, _ = io.Copy(io.Discard, os.Stdin)
		if o.asked(deniedHost) {
			t.Errorf("%s was asked", deniedHost)
		}
		for _, q := range dns.Queries() {
			if q.Name == deniedHost+"." {
				t.Errorf("the name of %s was looked up", deniedHost)
			}
		}
		if !o.asked(allowedHost) {
			t.Errorf("%s was not asked", allowedHost)
		}
	})
}
