package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"postern/caddy-modules/policy"
)

// Parent is another proxy that everything allowed goes through, as networks demand
// that let nothing else out. It stands behind the policy: names are looked up and
// addresses vetted as without it, and it is told the vetted address. Nothing of the
// environment and nothing that a client sends chooses it.
type Parent struct {
	host   string // with port
	socks  bool
	secret func() (string, error)
	direct *policy.Set // denies what does not go through it
	byName bool
}

// NewParent reads http://HOST[:PORT] or socks5://HOST[:PORT]. secret gives the
// credentials as user:password each time they are needed, nil for none. noProxy
// are the targets that are dialled directly: rules without flags, which mean every
// port when they name none; what is this machine is always dialled directly. With
// byName the parent gets the name and looks it up itself: then nobody vets the
// address it goes to, and a rule with the flag private is refused.
func NewParent(text string, secret func() (string, error), noProxy []policy.Rule, byName bool) (*Parent, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("parse upstream: it is no URL; write http://HOST:PORT or socks5://HOST:PORT")
	}
	p := &Parent{secret: secret, byName: byName}
	port := "80"
	switch u.Scheme {
	case "http":
	case "socks5":
		p.socks, port = true, "1080"
	default:
		return nil, fmt.Errorf("parse upstream: the scheme %q is not offered; write http://HOST:PORT or socks5://HOST:PORT", u.Scheme)
	}
	switch {
	case u.User != nil:
		return nil, errors.New("parse upstream: credentials do not belong into the URL; name a file with them")
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.Opaque != "":
		return nil, errors.New("parse upstream: the URL holds more than a host and a port")
	case u.Port() != "":
		port = u.Port()
	}
	if _, err := policy.ParseTarget(net.JoinHostPort(u.Hostname(), port), policy.SchemeTCP); err != nil {
		return nil, fmt.Errorf("parse upstream: %w", err)
	}
	p.host = net.JoinHostPort(u.Hostname(), port)
	if p.direct, err = policy.Compile(policy.Lists{Deny: noProxy}, nil); err != nil {
		return nil, fmt.Errorf("read no_proxy: %w", err)
	}
	return p, nil
}

// String is the host and port, without credentials, "" of none.
func (p *Parent) String() string {
	if p == nil {
		return ""
	}
	return p.host
}

// passes says that a name, or a target that is an address, is dialled without the
// parent, whatever address it resolves to.
func (p *Parent) passes(t policy.Target) bool {
	return t.Host().ThisMachine() || p.direct.Decide(t).Code == policy.Denied
}

// split parts the vetted addresses of a target into those that are dialled directly
// and those that the parent is told: each is judged by itself, so that what no_proxy
// names never goes to the parent, and nothing else past it.
func (p *Parent) split(t policy.Target, addrs []netip.Addr) (direct, through []netip.Addr) {
	if p.passes(t) {
		return addrs, nil
	}
	for _, a := range addrs {
		at, err := policy.NewTarget(policy.HostFromAddr(a), t.Port(), t.Scheme())
		// The parent would take a loopback address for its own.
		if a.IsLoopback() || err == nil && p.direct.Decide(at).Code == policy.Denied {
			direct = append(direct, a)
		} else {
			through = append(through, a)
		}
	}
	return direct, through
}

// reach connects to one of the vetted addresses, each by the way that is its own, and
// gives the parent that it went through, nil for none. Where there are both kinds, the
// kind of the first address comes first, and has half of the time.
func (g *Gate) reach(ctx context.Context, p *Parent, t policy.Target, addrs []netip.Addr) (*net.TCPConn, netip.Addr, *Parent, error) {
	direct, through := addrs, []netip.Addr(nil)
	if p != nil {
		direct, through = p.split(t, addrs)
	}
	by := func(ctx context.Context, p *Parent) (*net.TCPConn, netip.Addr, *Parent, error) {
		if p == nil {
			conn, addr, err := g.connect(ctx, t, direct)
			return conn, addr, nil, err
		}
		conn, addr, err := g.through(ctx, p, t, through)
		return conn, addr, p, err
	}
	switch {
	case len(through) == 0:
		return by(ctx, nil)
	case len(direct) == 0:
		return by(ctx, p)
	}
	first, second := p, (*Parent)(nil)
	if direct[0] == addrs[0] {
		first, second = second, first
	}
	half := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		half, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	conn, addr, used, err := by(half, first)
	if err == nil || isDenied(err) || ctx.Err() != nil {
		return conn, addr, used, err
	}
	return by(ctx, second)
}

// named says that the parent looks the name of a target up.
func (p *Parent) named(t policy.Target) bool {
	return p != nil && p.byName && t.Host().Name() != "" && !p.passes(t)
}

// refuseNamed refuses what can only be judged with an address.
func refuseNamed(t policy.Target, d policy.Decision) error {
	if slices.Contains(strings.Fields(d.Rule), "private") {
		return &Denied{Target: t, Decision: policy.Refuse(t, policy.NameRefused, "the rule \""+d.Rule+"\" ("+d.Source+") has the flag private, and the parent proxy looks names up where nobody vets the address; add the host to no_proxy")}
	}
	return nil
}

// errRefusedByParent is for a parent that answered, and not with a connection.
var errRefusedByParent = errors.New("the parent proxy refused the connection")

// through connects to a target by the parent: by its name, or by the first of the
// vetted addresses that the parent reaches.
func (g *Gate) through(ctx context.Context, p *Parent, t policy.Target, addrs []netip.Addr) (*net.TCPConn, netip.Addr, error) {
	if len(addrs) == 0 {
		conn, err := g.oneThrough(ctx, p, t, t.String())
		return conn, netip.Addr{}, p.asError(ctx, t, err)
	}
	var first error
	for _, a := range addrs[:min(len(addrs), maxAttempts)] {
		conn, err := g.oneThrough(ctx, p, t, netip.AddrPortFrom(a, t.Port()).String())
		if err == nil {
			return conn, a, nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, errRefusedByParent) || ctx.Err() != nil {
			break // the parent itself is what is in the way
		}
	}
	return nil, netip.Addr{}, p.asError(ctx, t, first)
}

func (p *Parent) asError(ctx context.Context, t policy.Target, err error) error {
	if err == nil || isDenied(err) {
		return err
	}
	return &DialError{Target: t, Op: OpParent, Err: err, Late: isLate(ctx, err), parent: p.String()}
}

// oneThrough gives a connection to the parent, bare, with the bytes of the
// handshake read and not one more.
func (g *Gate) oneThrough(ctx context.Context, p *Parent, t policy.Target, to string) (*net.TCPConn, error) {
	// The policy may have changed since; there is no address of a socket to ask
	// about, as there is without a parent.
	set := g.policy().Approved(ctx)
	d := set.Decide(t)
	if at, err := netip.ParseAddrPort(to); err == nil {
		d = set.DecideAddr(t, at.Addr())
	}
	if !d.Allowed {
		return nil, &Denied{Target: t, Decision: d}
	}
	dialer := net.Dialer{KeepAlive: -1, Control: g.controlParent}
	c, err := dialer.DialContext(ctx, "tcp", p.host)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	if p.socks {
		err = p.socksHandshake(conn, to)
	} else {
		err = p.httpHandshake(conn, to)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// controlParent keeps the parent from being a listener of the appliance itself,
// which would go round in circles. No list of a policy applies to it.
func (g *Gate) controlParent(network, address string, c syscall.RawConn) error {
	peer, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial the parent proxy: %w", err)
	}
	at, err := policy.NewTarget(policy.HostFromAddr(peer.Addr()), peer.Port(), policy.SchemeTCP)
	if err != nil {
		return fmt.Errorf("dial the parent proxy: %w", err)
	}
	if g.policy().Decide(at).Code == policy.OwnListener {
		return fmt.Errorf("dial the parent proxy: %s is a listener of this appliance", address)
	}
	if g.Control != nil {
		return g.Control(network, address, c)
	}
	return nil
}

// credentials gives user and password; ok is false when there are none.
func (p *Parent) credentials() (user, password string, ok bool, err error) {
	if p.secret == nil {
		return "", "", false, nil
	}
	text, err := p.secret()
	if err != nil {
		return "", "", false, fmt.Errorf("read the credentials of the parent proxy: %w", err)
	}
	user, password, ok = strings.Cut(strings.TrimRight(text, "\r\n"), ":")
	if !ok || user == "" || strings.ContainsAny(user+password, "\r\n\x00") {
		return "", "", false, errors.New("read the credentials of the parent proxy: they are not of the form user:password on one line")
	}
	return user, password, true, nil
}

func parentSays(what string, code int) error {
	return fmt.Errorf("%w: %s %s", errRefusedByParent, what, strconv.Itoa(code))
}
