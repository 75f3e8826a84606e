//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Lab is the network inside. There is one in a process.
type Lab struct {
	// IPv6 is false where the kernel has none.
	IPv6 bool

	lo int // index of the loopback link
}

// LAN is the machine's address on its local network: an address of an
// interface, as 192.168.x.y would be on a laptop.
var LAN = netip.MustParseAddr("192.168.77.2")

// setUp runs once; tests in one binary may ask again.
var setUp = sync.OnceValues(func() (*Lab, error) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find the loopback link: %w", err)
	}
	l := &Lab{lo: lo.Index, IPv6: true}
	nl, err := dialNetlink()
	if err != nil {
		return nil, err
	}
	defer nl.close()
	if err := nl.linkUp(l.lo); err != nil {
		return nil, fmt.Errorf("bring lo up: %w", err)
	}
	if err := nl.addAddr(l.lo, netip.PrefixFrom(LAN, 32)); err != nil {
		return nil, fmt.Errorf("add %s to lo: %w", LAN, err)
	}
	if err := nl.routeLocal(l.lo, unix.AF_INET); err != nil {
		return nil, fmt.Errorf("make every IPv4 address local: %w", err)
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); errors.Is(err, fs.ErrNotExist) {
		l.IPv6 = false
		return l, nil
	}
	if err := nl.routeLocal(l.lo, unix.AF_INET6); err != nil {
		return nil, fmt.Errorf("make every IPv6 address local: %w", err)
	}
	return l, nil
})
