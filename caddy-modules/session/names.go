package session

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/dnsguard"
)

// Guard opens the guard of a session's names. A *dnsguard.Guard is one. Those of
// successive generations share a dnsguard.Store, so that what a session was told and
// has spent outlives a reload.
type Guard interface {
	Session(id string, policy func() *policy.Set, o ...dnsguard.SessionOption) *dnsguard.View
}

// names are a session's names: what it was told of them, and who looks them up. The
// view is that of the generation that governs, and the one before is closed only when
// it is open, since the state goes with the last.
type names struct {
	view atomic.Pointer[dnsguard.View]

	mu      sync.Mutex // guards what follows
	guard   Guard      // that view belongs to
	before  []*dnsguard.View
	stub    stub
	stopped bool
}

// follow opens a view of the generation's guard. Nothing is waited for: retire closes
// the view before. Where no generation governs the view stays, which the policy of that
// time asks for nothing.
func (s *session) follow(g *Generation) {
	n := &s.names
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped || g == nil || g.Guard == n.guard {
		return
	}
	var view *dnsguard.View
	if g.Guard != nil {
		view = g.Guard.Session(s.spec.ID, s.policy, s.naming(g)...)
	}
	if old := n.view.Swap(view); old != nil {
		n.before = append(n.before, old)
	}
	if n.stub.server != nil && view != nil {
		n.stub.server.Swap(view)
	}
	n.guard = g.Guard
}

// retire closes the views of generations that went.
func (n *names) retire() {
	n.mu.Lock()
	before := n.before
	n.before = nil
	n.mu.Unlock()
	for _, view := range before {
		_ = view.Close() // it gives none
	}
}

// stop ends the stub server, closes the last view as well, and with it forgets what the
// session knew.
func (n *names) stop() {
	n.mu.Lock()
	n.stopped = true
	server := n.stub.server
	n.mu.Unlock()
	n.retire()
	// The view first: the server waits for the answers under way, and those for it.
	if view := n.view.Load(); view != nil {
		_ = view.Close()
	}
	if server != nil {
		_ = server.Close() // it gives none
	}
	n.stub.loops.Wait()
}

// Resolve asks the session's view, or where the generation has no guard its resolver.
// It implements proxy.Resolver, so that a reload reaches sessions that are open; one in
// the middle of a lookup costs that another.
func (s *session) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	for {
		view := s.names.view.Load()
		if view == nil {
			g := s.view.Load().gen
			if g == nil || g.Resolver == nil {
				return nil, errNoResolver
			}
			return g.Resolver.Resolve(ctx, name)
		}
		addrs, err := view.Resolve(ctx, name)
		if errors.Is(err, dnsguard.ErrClosed) && s.names.view.Load() != view {
			continue
		}
		return refusedNames(addrs, err)
	}
}

// held keeps an address for a name while a connection to it lives: later answers, made
// to lead somewhere else, do not take it away. ok is false for one that the session was
// not told for that name.
func (s *session) held(name string, addr netip.Addr) (release func(), ok bool) {
	view := s.names.view.Load()
	if view == nil {
		return func() {}, true
	}
	return view.Hold(name, addr)
}

// refusedNames tells the proxies a guard's refusals in their own words. Without it a
// name that policy refuses would read as one that could not be looked up: 502, try
// again, where 403 is meant. Refused addresses are given on: the gate refuses each
// again, with the target it was really asked for in its reason.
func refusedNames(addrs []netip.Addr, err error) ([]netip.Addr, error) {
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
