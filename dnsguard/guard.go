package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// Guard is a configured DNS guard. Its methods may be called at the same time.
type Guard struct {
	conf       Config
	types      []uint16
	denyRcode  int
	localHosts map[policy.Host]struct{}
	asker      exchanger
	fixed      []upstream // configured ones; nil when resolv.conf is followed
	bare       *View      // Guard.Resolve's
}

// New makes a guard. It opens nothing and asks nobody; an error names the field
// that cannot work. Without Upstreams it does not fail for a missing
// resolv.conf: lookups then do, and say so.
func New(conf Config) (*Guard, error) {
	if err := conf.complete(); err != nil {
		return nil, fmt.Errorf("configure the dns guard: %w", err)
	}
	g := &Guard{conf: conf, denyRcode: denyRcodes[conf.DenyRcode]}
	for _, name := range conf.Types {
		g.types = append(g.types, dns.StringToType[name])
	}
	var err error
	if g.localHosts, err = localHosts(conf.LocalHosts); err != nil {
		return nil, fmt.Errorf("configure the dns guard: %w", err)
	}
	var failures []error
	for _, text := range conf.Upstreams {
		spec, err := parseUpstream(text)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		g.fixed = append(g.fixed, g.upstream(spec))
	}
	if err := errors.Join(failures...); err != nil {
		return nil, fmt.Errorf("configure the dns guard: %w", err)
	}
	g.asker.tries, g.asker.try, g.asker.total = conf.Tries, conf.TryTimeout, conf.TotalTimeout
	if len(g.fixed) > 0 {
		g.asker.upstreams = func() ([]upstream, error) { return g.fixed, nil }
	} else {
		host := &hostResolvers{path: conf.ResolvConf, now: conf.now, make: func(addr netip.AddrPort) upstream {
			return g.upstream(upstreamSpec{scheme: schemeUDP, addr: addr})
		}}
		g.asker.upstreams = host.upstreams
	}
	g.bare = g.view("", nil)
	return g, nil
}

func (g *Guard) upstream(spec upstreamSpec) upstream {
	switch spec.scheme {
	case schemeTLS:
		return newOverTLS(spec, g.conf.RootCAs, g.conf.Dial)
	case schemeHTTPS:
		return newOverHTTPS(spec, g.conf.RootCAs, g.conf.Dial)
	default:
		return &plain{
			addr: spec.addr, tcpOnly: spec.scheme == schemeTCP,
			mixCase: !g.conf.SameCase, dial: g.conf.Dial,
		}
	}
}

// SessionOption changes one View.
type SessionOption func(*View)

// WithFakeIP overrides Config.FakeIP for the session: its stub server may hand
// out fake addresses while another's does not.
func WithFakeIP(on bool) SessionOption { return func(v *View) { v.fake = on } }

// WithFakeIP6 overrides Config.FakeIP6 for the session: it is of use only where
// the sandbox takes the addresses of that range.
func WithFakeIP6(on bool) SessionOption { return func(v *View) { v.fake6 = on } }

// WithRestored says that the session was there before this process: the one before
// was killed, and its table of fake addresses with it, while clients may still know
// some. Those handed out from now on begin at a place of the range that is drawn, so
// that an address of the time before most likely stands for no name, and is refused.
// It is no promise: the more names there were and are, the sooner a draw puts one
// where another was.
func WithRestored(yes bool) SessionOption {
	return func(v *View) {
		if !yes {
			return
		}
		v.state.mu.Lock()
		defer v.state.mu.Unlock()
		v.state.fakes.elsewhere()
	}
}

// Session opens the guard of session id, which is a proxy.Resolver for that
// session's proxies and what a Server serves. policy gives the rules of the
// moment and is called once for each query; nil rules refuse everything. Views
// of one id share their state through the Store, so the guard of a new
// configuration opens its views before the old ones are closed. Close it when
// the session ends.
func (g *Guard) Session(id string, policy func() *policy.Set, options ...SessionOption) *View {
	v := g.view(id, policy)
	for _, option := range options {
		option(v)
	}
	return v
}

func (g *Guard) view(id string, rules func() *policy.Set) *View {
	v := &View{guard: g, policy: rules, fake: g.conf.FakeIP, fake6: g.conf.FakeIP6, done: make(chan struct{}), flights: make(map[cacheKey]*flight)}
	if rules == nil {
		v.state = &session{id: id} // never shared with a session that has rules
	} else {
		v.state = g.conf.Store.open(id)
	}
	return v
}

// Resolve looks up a name for a caller that asked the policy about it before
// and puts every address it gets before the policy, as proxy.Gate does. Special
// names and public resolvers are refused here too; lists, budgets, pins and the
// address check are not applied, since without a session there are none.
// Use View.Resolve wherever the session is known.
func (g *Guard) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	return g.bare.Resolve(ctx, name)
}

// Close ends what the guard itself has open: connections kept to upstreams and
// lookups of Guard.Resolve. Views have their own Close.
func (g *Guard) Close() error {
	err := g.bare.Close()
	for _, up := range g.fixed {
		up.close()
	}
	return err
}

func (g *Guard) handsOut(qtype uint16) bool { return slices.Contains(g.types, qtype) }
