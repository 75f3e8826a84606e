package gitgw

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// owns reports whether an address is the forge's own: of the origin of its git or its
// API. There it may be private, and be spoken to as the configuration says.
func (f Forge) owns(at *url.URL) bool {
	for _, base := range []*url.URL{f.Git, f.API} {
		if base != nil && at.Scheme == base.Scheme && strings.EqualFold(at.Hostname(), base.Hostname()) && portOf(at) == portOf(base) {
			return true
		}
	}
	return false
}

// below reports whether an address is of a host below the forge's: as media.HOST, where
// GitHub Enterprise keeps files. Its name is the forge's to give, so it may be private;
// it has to be https.
func (f Forge) below(at *url.URL) bool {
	if f.Git == nil || at.Scheme != "https" || portOf(at) != "443" {
		return false
	}
	host := strings.ToLower(f.Git.Hostname())
	_, err := netip.ParseAddr(host)
	return err != nil && strings.HasSuffix(strings.ToLower(at.Hostname()), "."+host)
}

func portOf(at *url.URL) string {
	if port := at.Port(); port != "" || at.Scheme != "https" {
		return orDefault(port, "80")
	}
	return "443"
}

// checkAction refuses an address to which no object should go, and no credential: one
// that is neither the forge's own nor public, one in the clear, and any where the
// forge's answer says the gateway's token.
func (u *upstream) checkAction(a *lfsAction, g *Gateway, token Token) error {
	if a == nil {
		return errors.New("it is empty")
	}
	at, err := url.Parse(a.Href)
	if err != nil || at.Host == "" || at.Hostname() == "" || at.User != nil || at.Fragment != "" || at.Scheme != "https" && at.Scheme != "http" {
		return errors.New("it has no address to upload to")
	}
	for name := range a.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Te", "Upgrade", "Expect", "Cookie", "Proxy-Authorization", "Proxy-Connection":
			return errors.New("it sets " + printable(http.CanonicalHeaderKey(name), 32))
		}
	}
	if u.forge.owns(at) {
		return nil
	}
	if at.Scheme != "https" {
		return errors.New("its address is not https")
	}
	told := redactorOf([]Token{token})
	tells := told.holds(a.Href)
	for name, value := range a.Header {
		tells = tells || told.holds(name) || told.holds(value)
	}
	if tells {
		return errors.New("it tells the gateway's token to another host")
	}
	if u.forge.below(at) {
		return nil
	}
	if addr, err := netip.ParseAddr(at.Hostname()); err == nil {
		return g.vet(addr)
	}
	if g.Vet == nil {
		return fmt.Errorf("its host %s is refused: %w", printable(at.Hostname(), 80), errUnvetted)
	}
	return nil
}

// storage reaches where a forge keeps objects, for an address that is not its own: no
// private one, whatever its name resolves to.
func (g *Gateway) storage() http.RoundTripper {
	if g.Storage != nil {
		return g.Storage
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stores == nil {
		dial := &vettedDialer{lookup: net.DefaultResolver.LookupNetIP, vet: g.vet}
		g.stores = &http.Transport{
			Proxy: nil, DialContext: dial.dial, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 8,
			IdleConnTimeout: 90 * time.Second, DisableCompression: true, WriteBufferSize: 64 << 10, Protocols: http1(),
		}
	}
	return g.stores
}

// vet says why an address that a forge named is not gone to.
func (g *Gateway) vet(addr netip.Addr) error {
	err := errUnvetted
	if g.Vet != nil {
		err = g.Vet(addr)
	}
	if err != nil {
		return &coded{CodeLFSAddress, fmt.Errorf("its address %s is refused: %w", addr, err)}
	}
	return nil
}

// errUnvetted is why no address but the forge's own is gone to without [Gateway.Vet].
var errUnvetted = errors.New("nothing here tells which addresses are public")

// vettedDialer looks a name up, refuses it whole if one of its addresses is refused, and
// dials what it has looked at.
type vettedDialer struct {
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	vet    func(netip.Addr) error
}

func (d *vettedDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	addrs := []netip.Addr{}
	if literal, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, literal)
	} else if addrs, err = d.lookup(ctx, "ip", host); err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	for _, addr := range addrs {
		if err := d.vet(addr); err != nil {
			return nil, err
		}
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	err = fmt.Errorf("look up %s: no address", host)
	for _, addr := range addrs {
		conn, failed := dialer.DialContext(ctx, network, net.JoinHostPort(addr.Unmap().String(), port))
		if failed == nil {
			return conn, nil
		}
		err = failed
	}
	return nil, err
}
