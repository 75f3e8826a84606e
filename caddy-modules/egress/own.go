package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/sys/unix"
)

// setOwn tells the registry which TCP addresses belong to this process, so that
// no rule opens a way from a sandbox to the appliance itself. Sites are taken
// from the configuration, as they may be about to open; the admin endpoint, whose
// address Caddy shows to no module, and whatever else listens are asked of the
// kernel.
func (app *App) setOwn() error {
	addrs, err := app.siteAddrs()
	if err != nil {
		return err
	}
	live, err := listening()
	if err != nil {
		return fmt.Errorf("find this process's listeners: %w", err)
	}
	// The registry knows its sessions' listeners itself, and knows when they
	// close, which a list made now does not.
	sessions := map[string]bool{}
	for _, s := range app.registry.Snapshot() {
		sessions[s.HTTP], sessions[s.SOCKS] = true, true
	}
	for _, a := range live {
		if !sessions[a.String()] {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	app.registry.SetOwn(app, slices.Compact(addrs))
	return nil
}

// siteAddrs returns the TCP addresses of the HTTP servers of this configuration.
// At Start every app has been provisioned, so that asking for one builds nothing.
func (app *App) siteAddrs() ([]netip.AddrPort, error) {
	v, err := app.ctx.AppIfConfigured("http")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var listen []string
	for _, srv := range v.(*caddyhttp.App).Servers {
		listen = append(listen, srv.Listen...)
	}
	return tcpAddrs(listen)
}

// tcpAddrs expands Caddy's network addresses. A host that is a name other than
// localhost counts as every address of this machine: to resolve it here would be
// slower and less sure.
func tcpAddrs(listen []string) ([]netip.AddrPort, error) {
	var addrs []netip.AddrPort
	for _, text := range listen {
		na, err := caddy.ParseNetworkAddress(text)
		if err != nil {
			return nil, fmt.Errorf("parse listen address %q: %w", text, err)
		}
		if na.Network != "tcp" && na.Network != "tcp4" && na.Network != "tcp6" {
			continue
		}
		hosts := []netip.Addr{netip.IPv6Unspecified()}
		if a, err := netip.ParseAddr(na.Host); err == nil {
			hosts = []netip.Addr{a}
		} else if na.Host == "localhost" {
			hosts = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
		}
		for port := na.StartPort; port <= na.EndPort && port <= 65535; port++ {
			for _, h := range hosts {
				addrs = append(addrs, netip.AddrPortFrom(h, uint16(port)))
			}
		}
	}
	return addrs, nil
}

// listening returns the address of every TCP socket this process listens on. A
// descriptor may be closed, or become another one, while it is looked at; asking
// changes nothing, so the worst is an address too many.
func listening() ([]netip.AddrPort, error) {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return nil, err
	}
	var addrs []netip.AddrPort
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
			continue // not a socket, or one that does not listen
		}
		name, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		switch sa := name.(type) {
		case *unix.SockaddrInet4:
			addrs = append(addrs, netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))) //nolint:gosec // G115 the kernel's ports fit
		case *unix.SockaddrInet6:
			addrs = append(addrs, netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))) //nolint:gosec // G115 the kernel's ports fit
		}
	}
	return addrs, nil
}

// startedHandler looks again once every app has started: one that starts after
// this one may listen too.
type startedHandler struct{ app *App }

// Handle implements [caddyevents.Handler].
func (h startedHandler) Handle(context.Context, caddy.Event) error { return h.app.setOwn() }

// Interface guard
var _ caddyevents.Handler = startedHandler{}
