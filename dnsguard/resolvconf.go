package dnsguard

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	defaultResolvConf = "/etc/resolv.conf"
	maxResolvConf     = 64 << 10 // octets; a resolv.conf has some hundred
	maxNameservers    = 3        // MAXNS of resolv.h: what other programs of this host use
	resolvConfAge     = 5 * time.Second
)

// hostResolvers are the nameservers of a resolv.conf, read again when the file
// changed: a laptop that moves to another network has other ones.
type hostResolvers struct {
	path string
	make func(netip.AddrPort) upstream
	now  func() time.Time

	mu      sync.Mutex
	checked time.Time
	seen    os.FileInfo
	list    []upstream
	err     error
}

// upstreams returns the nameservers in the file's order. An error says what to
// do about it; it never means that some other resolver should be asked.
func (h *hostResolvers) upstreams() ([]upstream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if !h.checked.IsZero() && now.Sub(h.checked) < resolvConfAge {
		return h.list, h.err
	}
	// A stat is cheap, a read and a parse for each query are not.
	h.checked = now
	info, err := os.Stat(h.path)
	if err == nil && h.seen != nil && os.SameFile(info, h.seen) &&
		info.ModTime().Equal(h.seen.ModTime()) && info.Size() == h.seen.Size() {
		return h.list, h.err
	}
	h.seen, h.list = info, nil
	// The old list is not kept over an error: the file may have changed because
	// the network did, and the old resolvers may be somebody else's now.
	servers, err := readResolvConf(h.path)
	if err != nil {
		h.seen, h.err = nil, fmt.Errorf("find an upstream resolver: %w", err)
		return nil, h.err
	}
	for _, addr := range servers {
		h.list = append(h.list, h.make(netip.AddrPortFrom(addr, 53)))
	}
	h.err = nil
	return h.list, nil
}

// readResolvConf opens path without waiting for a writer (a FIFO there must not
// hang the appliance) and without reading past a bound.
func readResolvConf(path string) ([]netip.Addr, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	servers, err := parseResolvConf(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return servers, nil
}

// parseResolvConf takes the nameserver lines and nothing else. Search lists and
// ndots never apply here: every name the guard sees is already complete, and a
// suffix added to it would be another name than the one the policy saw. A line
// that cannot be read is skipped as resolv.conf(5) readers do, but a file with
// no usable line is an error, not a licence to try loopback.
func parseResolvConf(r io.Reader) ([]netip.Addr, error) {
	var servers []netip.Addr
	limited := &io.LimitedReader{R: r, N: maxResolvConf + 1}
	lines := bufio.NewScanner(limited)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(fields[1])
		if err != nil || usable(addr) != nil {
			continue
		}
		if len(servers) < maxNameservers {
			servers = append(servers, addr.Unmap())
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if limited.N == 0 {
		return nil, fmt.Errorf("it is longer than %d octets", maxResolvConf)
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("it names no usable nameserver: name one, or set upstreams")
	}
	return servers, nil
}
