package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"

	"github.com/caddyserver/caddy/v2"
)

func init() {
	caddy.RegisterNetwork(Network, listenSandbox)
}

// Network is the network of sessions, as in `bind sandbox/NAME`.
const Network = "sandbox"

// listenerName is what may follow the slash of `bind sandbox/NAME`.
var listenerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)

// listenSandbox serves `bind sandbox/NAME`: a site without a port, which only
// sessions reach, through their own proxies. A connection's remote address is
// the session's id. As Caddy wants of its listeners, an old and a new
// configuration may hold the same name for a while; the newest gets the
// connections, and gives them back if it is closed first.
func listenSandbox(_ context.Context, _, host, _ string, portOffset uint, _ net.ListenConfig) (any, error) {
	if !listenerName.MatchString(host) {
		return nil, fmt.Errorf("listen on network sandbox: %q is not a name (a-z 0-9 -), as in sandbox/git", host)
	}
	if portOffset != 0 {
		return nil, fmt.Errorf("listen on sandbox/%s: the network has names and no ports, so no range of them", host)
	}
	registry := current()
	if registry == nil {
		return nil, fmt.Errorf("listen on sandbox/%s: %w", host, errNoApp)
	}
	return registry.Network().Listen(host)
}

var errNoApp = errors.New("the app egress is not configured; add an egress block to the global options")
