package session

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
)

// Generation is what one configuration says. It must not change once it has been
// pushed.
type Generation struct {
	// Policies are the compiled policies by name; DefaultPolicy is the one of
	// sessions that name none.
	Policies      map[string]*policy.Set
	DefaultPolicy string

	// Guard opens the resolver of each session. Without one, Resolver looks up the
	// names that a policy allows, for all of them alike.
	Guard    Guard
	Resolver proxy.Resolver

	// Stub says how names are answered on lent sockets, FakeIPv6 whether with made-up
	// addresses of IPv6 too, where the sandbox has a listener for them.
	Stub     Stub
	FakeIPv6 bool

	// Limits and SNI hold for connections made while this generation governs;
	// those made before end under the ones they began with.
	Limits proxy.Limits
	SNI    proxy.SNIMode

	// PolicyCaps bound the sessions of a policy, by its name, further than Limits does.
	PolicyCaps map[string]Caps

	// Parent is the proxy that new connections of all sessions go through, nil for none.
	Parent *proxy.Parent

	// LocalHosts are names that the appliance answers itself, on port 80 and
	// before any policy: git.internal is the listener "git" of the Network.
	LocalHosts []string

	// Forges are the hosts whose pushes the gateway takes, for the launcher's
	// git configuration.
	Forges []string

	// Broker gives runs their read tokens; nil where no forge is configured.
	Broker Broker

	// Approvals are about hosts that a policy asks about first.
	Approvals Approvals

	// Log takes what concerns sessions while this generation governs.
	Log *slog.Logger

	// Emit is given every event, by one goroutine of the registry, behind a
	// bounded queue. It may be nil.
	Emit func(lease.Event)
}

// Broker makes and revokes the read token of a run: contents:read,
// pull_requests:write and metadata:read, on one repository.
type Broker interface {
	// Mint makes a token for github.com/owner/name. An empty value without an
	// error means that this repository has none, and that this is as configured.
	// revoke makes the value useless; it outlives the configuration. ctx does not
	// end with whoever waits, and names in whose name it is (HolderFrom): a caller
	// that goes away must not leave a token behind that is still on its way.
	Mint(ctx context.Context, repository string) (value string, expires time.Time, revoke func(context.Context) error, err error)

	// Adopt returns how to revoke a token that an earlier process minted.
	Adopt(value string) (revoke func(context.Context) error)
}

// view is what a generation means for one session. Connections read it through
// one pointer, so that they never see half of a reload.
type view struct {
	gen      *Generation // nil: no generation governs
	terms    *terms      // of the session
	policy   string      // the name of the policy
	until    time.Time   // when the first grant runs out, zero for never
	set      *policy.Set
	refusing string // why set refuses everything, if it does
	unfit    error  // why the session's rules do not go with the policy, if they do not
}

// look computes the view of a session. It never fails: what cannot be had is
// refused, with a reason.
func look(g *Generation, t *terms) *view {
	spec := &t.spec
	v := &view{gen: g, terms: t, policy: spec.Policy, until: soonest(t.grants)}
	closed := func(reason string) *view {
		v.set, v.refusing = policy.Closed(reason), reason
		return v
	}
	if g == nil {
		return closed("no configuration governs this appliance at the moment")
	}
	if v.policy == "" {
		v.policy = g.DefaultPolicy
	}
	if !spec.Network() {
		v.set, v.refusing = policy.Off(), "network access is off for this session"
		return v
	}
	base := g.Policies[v.policy]
	if base == nil {
		return closed(unknownPolicy(g, v.policy) + "; add it again, or end the session")
	}
	set, err := base.Extend(t.added())
	if err != nil {
		v.unfit = err
		return closed("the session's rules do not compile: " + err.Error())
	}
	v.set = set
	return v
}

// unknownPolicy says which policies there are instead.
func unknownPolicy(g *Generation, name string) string {
	names := slices.Sorted(maps.Keys(g.Policies))
	if len(names) == 0 {
		return fmt.Sprintf("the configuration has no policy %q, nor any other", name)
	}
	return fmt.Sprintf("the configuration has no policy %q; it has %s", name, strings.Join(names, ", "))
}

// git is the answer's git part.
func (g *Generation) git() lease.Git {
	if g == nil || len(g.LocalHosts) == 0 || len(g.Forges) == 0 {
		return lease.Git{}
	}
	return lease.Git{URL: "http://" + g.LocalHosts[0] + "/", Forges: slices.Clone(g.Forges)}
}
