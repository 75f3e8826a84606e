package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"postern/caddy-modules/policy"
)

// Resolver looks names up. It is called with canonical names that the policy
// allows, never with an address, and must honour ctx. It gives every address it
// got, private ones included: an answer that mixes public and private addresses
// is refused as a whole, which a resolver that filtered would hide.
type Resolver interface {
	Resolve(ctx context.Context, name string) ([]netip.Addr, error)
}

// Gate is the one way out of the appliance. It is safe for concurrent use once
// its fields are set.
type Gate struct {
	// Policy gives the policy in force, a snapshot for one request. nil, or a
	// nil Set, refuses everything.
	Policy func() *policy.Set
	// Resolver looks allowed names up. nil allows no names, only addresses.
	Resolver Resolver
	// Limits holds the dial limit, and for a Server all the others.
	Limits Limits
	// Record is called by a Server at each decision and at each close, from
	// many goroutines. It must not block. Open itself records nothing: it does
	// not know who asks.
	Record func(Record)
	// Control is called for every socket after the gate's own check and before
	// connect. An error refuses the connection. May be nil.
	Control func(network, address string, c syscall.RawConn) error

	// Ask is called by a Server for a target that the policy wants to be asked
	// about (policy.AskFirst), before anything is looked up. It may take as long
	// as a person does, and ends when ctx does: the client went away, or the
	// session ended. An allowed decision opens the target for this one client
	// connection, unless the policy allows it by then anyway; its Source says who
	// allowed it. Any other decision is the refusal. nil asks nobody.
	Ask func(ctx context.Context, d policy.Decision, proto Proto) (policy.Decision, error)
	// Held says that a name's address was handed out by the Resolver and still
	// holds, and keeps it so until release is called, which happens once at least.
	// A connection to an address that is not held is refused. nil asks nobody, and
	// nobody is asked about a target that is an address itself.
	Held func(name string, addr netip.Addr) (release func(), ok bool)

	// Parent gives the proxy that allowed connections go through from now on, nil for
	// none. May be nil.
	Parent func() *Parent

	// dial replaces the dialling of a vetted address in tests, where there is
	// no internet. Nothing sets it outside of them.
	dial func(context.Context, policy.Target, netip.Addr) (*net.TCPConn, error)
}

// Opened says how a connection came to be.
type Opened struct {
	// Addr is the vetted address that was connected to.
	Addr netip.AddrPort
	// Decision allowed that address.
	Decision policy.Decision
	// Resolved are the addresses of the name, none of a target that is an address;
	// no more than a Record keeps.
	Resolved []netip.Addr
	// Parent is the proxy that the connection goes through, "" for none. One that
	// looks names up leaves Addr and Resolved empty.
	Parent string
	// Lookup and Connect say where the time went.
	Lookup, Connect time.Duration
	// Release ends what Held began. It is nil when there is nothing to end, and
	// is called when the connection is closed.
	Release func()
}

// Open connects to a target: policy, lookup, policy for every address of the
// answer, dial, and policy again when the socket is about to connect. The time
// for all of it is Limits.Dial.
//
// The error is a *Denied when policy refused, with the decision, and a *DialError
// when the target is allowed and could not be reached. A denied name is never
// looked up, and a denied address never dialled.
func (g *Gate) Open(ctx context.Context, t policy.Target) (*net.TCPConn, Opened, error) {
	limits := g.Limits.withDefaults()
	ru := g.rule(t)
	return g.open(ctx, &ru, limits.Dial)
}

// rule has the policy of now decide.
func (g *Gate) rule(t policy.Target) ruling {
	set := g.policy()
	return ruling{target: t, set: set, decision: set.Decide(t)}
}

func (g *Gate) open(ctx context.Context, ru *ruling, limit time.Duration) (*net.TCPConn, Opened, error) {
	t := ru.target
	if !ru.decision.Allowed {
		return nil, Opened{}, &Denied{Target: t, Decision: ru.decision}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	parent := g.parent()
	if parent.named(t) {
		return g.openNamed(ctx, parent, t, ru.decision)
	}
	start := time.Now()
	var one [1]netip.Addr
	addrs, literal := one[:], false
	if one[0], literal = t.Host().Addr(); !literal {
		var err error
		if addrs, err = g.resolve(ctx, t); err != nil {
			return nil, Opened{}, err
		}
	}
	addrs, d, err := vet(ru.set, t, addrs)
	if err != nil {
		return nil, Opened{}, err
	}
	looked := time.Now()
	conn, addr, parent, err := g.reach(ctx, parent, t, addrs)
	if err != nil {
		if dial, ok := errors.AsType[*DialError](err); ok {
			dial.resolved = shownAddrs(t, addrs)
		}
		return nil, Opened{}, err
	}
	release, err := g.hold(t, addr)
	if err != nil {
		_ = conn.Close()
		return nil, Opened{}, err
	}
	return conn, Opened{
		Addr:     netip.AddrPortFrom(addr, t.Port()),
		Decision: d,
		Resolved: shownAddrs(t, addrs),
		Parent:   parent.String(),
		Lookup:   looked.Sub(start),
		Connect:  time.Since(looked),
		Release:  release,
	}, nil
}

// openNamed connects to a name by the parent, which looks it up.
func (g *Gate) openNamed(ctx context.Context, parent *Parent, t policy.Target, d policy.Decision) (*net.TCPConn, Opened, error) {
	if err := refuseNamed(t, d); err != nil {
		return nil, Opened{}, err
	}
	start := time.Now()
	conn, _, err := g.through(ctx, parent, t, nil)
	return conn, Opened{Decision: d, Parent: parent.String(), Connect: time.Since(start)}, err
}

func (g *Gate) parent() *Parent {
	if g.Parent == nil {
		return nil
	}
	return g.Parent()
}

// hold keeps the address for as long as the connection to it lives.
func (g *Gate) hold(t policy.Target, addr netip.Addr) (release func(), err error) {
	name := t.Host().Name()
	if g.Held == nil || name == "" {
		return nil, nil //nolint:nilnil // nothing to end is no error
	}
	release, ok := g.Held(name, addr)
	if !ok {
		return nil, &Denied{Target: t, Decision: policy.Refuse(t, policy.NameRefused, "its name does not stand for the address "+addr.String()+" any more; try again")}
	}
	return release, nil
}

// policy never gives an open policy for a missing one: a nil Set refuses.
func (g *Gate) policy() *policy.Set {
	if g.Policy == nil {
		return nil
	}
	return g.Policy()
}

func (g *Gate) resolve(ctx context.Context, t policy.Target) ([]netip.Addr, error) {
	if g.Resolver == nil {
		return nil, &DialError{Target: t, Op: OpLookup, Err: errNoResolver}
	}
	addrs, err := g.Resolver.Resolve(ctx, t.Host().Name())
	if err != nil {
		// A resolver that refuses by policy is a refusal, not a failure.
		if denied, ok := errors.AsType[*Denied](err); ok {
			return nil, denied
		}
		return nil, &DialError{Target: t, Op: OpLookup, Err: err, Late: isLate(ctx, err)}
	}
	if len(addrs) == 0 {
		return nil, &DialError{Target: t, Op: OpLookup, Err: errNoAddress}
	}
	return addrs, nil
}

// vet asks for every address and gives them in canonical form, each once. One
// that is refused refuses the whole answer: whoever can put a private address
// beside a public one only has to wait until the public one does not answer.
func vet(set *policy.Set, t policy.Target, answer []netip.Addr) ([]netip.Addr, policy.Decision, error) {
	var first policy.Decision
	addrs := make([]netip.Addr, 0, len(answer))
	for _, a := range answer {
		d := set.DecideAddr(t, a)
		if !d.Allowed {
			return nil, d, &Denied{Target: t, Decision: d}
		}
		a = a.WithZone("").Unmap()
		if !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
		if len(addrs) == 1 {
			first = d
		}
	}
	return addrs, first, nil
}
