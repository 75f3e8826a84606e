package dnsguard

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// upstream kinds, by the scheme an operator writes.
const (
	schemeUDP   = "udp" // UDP, and TCP where UDP does not do
	schemeTCP   = "tcp"
	schemeTLS   = "tls"   // DNS over TLS, RFC 7858
	schemeHTTPS = "https" // DNS over HTTPS, RFC 8484
)

// upstreamSpec is one parsed upstream address.
type upstreamSpec struct {
	scheme string
	addr   netip.AddrPort // of all but https
	name   string         // what the certificate must be for (tls)
	url    *url.URL       // https, without the fragment
	boot   []netip.Addr   // https: where the URL's host is, when it is a name
}

// parseUpstream reads one upstream:
//
//	1.1.1.1  1.1.1.1:5353  [2606:4700::1111]:53  udp://1.1.1.1
//	tcp://1.1.1.1
//	tls://1.1.1.1#cloudflare-dns.com       the name is checked in the certificate
//	https://1.1.1.1/dns-query
//	https://dns.example/dns-query#192.0.2.1[,2001:db8::1]
//
// Every form but the last names an address: a resolver that must first be
// resolved needs another one. An https host given as a name is reached at the
// addresses of the fragment; without a fragment this host's own resolver is
// asked for that one name.
func parseUpstream(text string) (upstreamSpec, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = schemeUDP, text
	}
	var spec upstreamSpec
	var err error
	switch scheme {
	case schemeUDP, schemeTCP:
		spec.addr, err = parseAddrPort(rest, 53)
	case schemeTLS:
		where, name, named := strings.Cut(rest, "#")
		if spec.addr, err = parseAddrPort(where, 853); err != nil {
			break
		}
		spec.name = spec.addr.Addr().WithZone("").String()
		if named {
			host, bad := parseName(name)
			if bad != nil {
				err = fmt.Errorf("%q is no certificate name", name)
				break
			}
			spec.name = host.String()
		}
	case schemeHTTPS:
		spec.url, spec.boot, err = parseDoH(text)
	default:
		err = fmt.Errorf("unknown scheme %q (udp, tcp, tls, https)", scheme)
	}
	if err != nil {
		return upstreamSpec{}, fmt.Errorf("parse upstream %q: %w", text, err)
	}
	spec.scheme = scheme
	return spec, nil
}

// parseDoH reads an https upstream. Anything that could carry a credential or
// vary between queries is refused rather than ignored.
func parseDoH(text string) (*url.URL, []netip.Addr, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	if u.User != nil || u.RawQuery != "" || u.Hostname() == "" {
		return nil, nil, fmt.Errorf("want https://HOST[:PORT]/PATH[#ADDRESS]")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, nil, fmt.Errorf("port %q is not within 1 to 65535", port)
		}
	}
	_, literalErr := netip.ParseAddr(u.Hostname())
	if literalErr != nil {
		if _, err := parseName(u.Hostname()); err != nil {
			return nil, nil, err
		}
	}
	var boot []netip.Addr
	if u.Fragment != "" {
		if literalErr == nil {
			return nil, nil, fmt.Errorf("the host is an address already, it needs none after #")
		}
		for part := range strings.SplitSeq(u.Fragment, ",") {
			addr, err := netip.ParseAddr(part)
			if err != nil {
				return nil, nil, fmt.Errorf("%q after # is no address", part)
			}
			boot = append(boot, addr)
		}
	}
	u.Fragment = ""
	if u.Path == "" {
		u.Path = "/dns-query"
	}
	return u, boot, nil
}

// parseAddrPort reads ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.
func parseAddrPort(text string, port uint16) (netip.AddrPort, error) {
	host := text
	if bare, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return netip.AddrPortFrom(bare.Unmap(), port), usable(bare)
	}
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no address: an upstream is named by address", text)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no address: an upstream is named by address", host)
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return netip.AddrPort{}, fmt.Errorf("port %q is not within 1 to 65535", digits)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), usable(addr)
}

// usable refuses addresses that no resolver can have. Loopback and private ones
// are fine: the operator's own resolver is usually there.
func usable(addr netip.Addr) error {
	if addr.IsUnspecified() || addr.IsMulticast() {
		return fmt.Errorf("no resolver can be at %s", addr)
	}
	return nil
}
