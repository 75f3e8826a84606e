package egress

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"postern/caddy-modules/proxy"
	"postern/dnsguard"
)

// linger is how long the guard of an old configuration is kept for lookups that
// began with it. A lookup takes 4.5 s at most.
const linger = 10 * time.Second

// guard makes the resolver of this configuration.
func (d *DNS) guard() (*dnsguard.Guard, error) {
	var conf dnsguard.Config
	if d != nil {
		conf.Upstreams = d.Upstreams
		conf.MaxTTL = time.Duration(d.MaxTTL)
	}
	return dnsguard.New(conf)
}

// resolver tells the proxies a guard's refusals in their own words. Without it a
// name that policy refuses would read as one that could not be looked up: 502,
// try again, where 403 is meant.
type resolver struct {
	lookup func(ctx context.Context, name string) ([]netip.Addr, error)
}

// Resolve gives refused addresses on: the gate refuses each again, with the
// target it was really asked for in its reason.
func (r resolver) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := r.lookup(ctx, name)
	refused, ok := errors.AsType[*dnsguard.RefusedError](err)
	switch {
	case !ok:
		return addrs, err
	case len(refused.Addrs) > 0:
		return refused.Addrs, nil
	case refused.Decision.Target().IsZero():
		return nil, err
	}
	return nil, &proxy.Denied{Target: refused.Decision.Target(), Decision: refused.Decision}
}
