package ports

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"postern/launcher/sandbox"
)

// Publish is a port of the sandbox that the host can reach.
type Publish struct {
	Addr   netip.Addr // of the host; the zero value is loopback, IPv4 and IPv6
	Host   uint16
	Inside uint16
}

// Grant is a port of the host's loopback that the sandbox can reach.
type Grant struct {
	Inside uint16
	Host   uint16
}

// Set is what a run has of both.
type Set struct {
	Publish []Publish
	Grants  []Grant
}

// Empty reports whether there is nothing to lead.
func (s Set) Empty() bool { return len(s.Publish) == 0 && len(s.Grants) == 0 }

// HostPorts are the ports of this host that the run can reach.
func (s Set) HostPorts() []uint16 {
	var out []uint16
	for _, g := range s.Grants {
		out = append(out, g.Host)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Parse reads the texts of -p and --host-port, and demands that they do not stand in
// each other's way. The error is a *sandbox.Refusal where a port is not to be had.
func Parse(publish, grants []string) (Set, error) {
	var s Set
	var errs []error
	for _, text := range publish {
		p, err := ParsePublish(text)
		errs = append(errs, err)
		s.Publish = append(s.Publish, p)
	}
	for _, text := range grants {
		g, err := ParseGrant(text)
		errs = append(errs, err)
		s.Grants = append(s.Grants, g)
	}
	if err := errors.Join(errs...); err != nil {
		return Set{}, err
	}
	return s, s.check()
}

// ParsePublish reads [ADDR:]HOSTPORT:PORT or PORT. An IPv6 address stands in brackets.
func ParsePublish(text string) (Publish, error) {
	var p Publish
	bad := func(err error) (Publish, error) {
		return Publish{}, fmt.Errorf("publish %q: %w; want PORT or [ADDR:]HOSTPORT:PORT", text, err)
	}
	rest, inside := "", text
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		rest, inside = text[:i], text[i+1:]
	}
	var err error
	if p.Inside, err = parsePort(inside); err != nil {
		return bad(err)
	}
	p.Host = p.Inside
	if inside == text {
		return p, nil
	}
	addr, host := "", rest
	if strings.Contains(rest, ":") {
		if addr, host, err = net.SplitHostPort(rest); err != nil {
			return bad(errors.New("not an address"))
		}
		if p.Addr, err = netip.ParseAddr(addr); err != nil {
			return bad(fmt.Errorf("%q is not an IP address", addr))
		}
	}
	if p.Host, err = parsePort(host); err != nil {
		return bad(err)
	}
	return p, nil
}

// ParseGrant reads PORT[:HOSTPORT]: inside it is PORT, on the host HOSTPORT, or the same.
func ParseGrant(text string) (Grant, error) {
	inside, host, two := strings.Cut(text, ":")
	var g Grant
	var err, hostErr error
	if g.Inside, err = parsePort(inside); two {
		g.Host, hostErr = parsePort(host)
	} else {
		g.Host = g.Inside
	}
	if err = errors.Join(err, hostErr); err != nil {
		return Grant{}, fmt.Errorf("open host port %q: %w; want PORT or PORT:HOSTPORT", text, err)
	}
	return g, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '0' || text[0] == '+' {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", text)
	}
	return uint16(n), nil
}

// check demands that no two want the same port.
func (s Set) check() error {
	inside := map[uint16]string{}
	for _, port := range sandbox.DefaultPorts {
		inside[uint16(port)] = "" //nolint:gosec // constants
	}
	for _, g := range s.Grants {
		by, taken := inside[g.Inside]
		switch {
		case taken && by == "":
			return reserved(g.Inside, fmt.Sprintf("--host-port OTHER:%d", g.Host))
		case taken:
			return fmt.Errorf("open host port %d: it is opened twice inside", g.Inside)
		}
		inside[g.Inside] = "grant"
	}
	for i, p := range s.Publish {
		switch by, taken := inside[p.Inside]; {
		case taken && by == "":
			// Whoever connects would act with the run's rights.
			return reserved(p.Inside, "have CMD listen on another port")
		case taken:
			return fmt.Errorf("publish port %d: inside, --host-port has it already: connections would go round in circles", p.Inside)
		}
		for _, o := range s.Publish[:i] {
			if o.Host == p.Host && (o.Addr == p.Addr || overlap(o.Addr, p.Addr)) {
				return fmt.Errorf("publish port %d: it is published twice on the host", p.Host)
			}
		}
	}
	return nil
}

// overlap reports whether listeners of one port at a and b exclude each other.
func overlap(a, b netip.Addr) bool {
	covers := func(a, b netip.Addr) bool {
		switch {
		case !a.IsValid():
			return b.IsLoopback()
		case !a.IsUnspecified():
			return false
		}
		return !b.IsValid() || a.Is4() == b.Is4()
	}
	return covers(a, b) || covers(b, a)
}

func reserved(port uint16, cure string) error {
	return &sandbox.Refusal{
		Reason: sandbox.ReasonPortReserved,
		Detail: fmt.Sprintf("port %d inside is one of the run's own proxies", port),
		Cure:   cure,
	}
}
