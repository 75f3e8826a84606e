package dnsguard

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// failureTTL is how long a failure to get an answer is kept (RFC 9520 §3.2 wants
// one second at least): enough to stop a storm, too short to be noticed after a
// repair.
const failureTTL = time.Second

// View is the guard of one session. What one session asks, is answered, spends
// or pins is never seen by another.
type View struct {
	guard  *Guard
	state  *session
	policy func() *policy.Set
	fake   bool
	fake6  bool // only with fake

	done chan struct{} // closed by Close
	wait sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	flights map[cacheKey]*flight
}

// flight is a lookup under way; all who ask for the same wait for it. It runs
// apart from its first asker, whose patience must not decide for the others.
type flight struct {
	done    chan struct{}
	finding *finding
	ttl     time.Duration
	cancel  context.CancelFunc
}

// Session is the id the view was opened with.
func (v *View) Session() string { return v.state.id }

// Close ends the session's lookups and waits for them. Afterwards Answer gives
// no answer and Resolve gives ErrClosed. The state goes with the last view.
func (v *View) Close() error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil
	}
	v.closed = true
	close(v.done)
	for _, fl := range v.flights {
		fl.cancel()
	}
	v.mu.Unlock()
	v.wait.Wait()
	if v.policy != nil {
		v.guard.conf.Store.close(v.state)
	}
	return nil
}

// isClosed is asked again after a lookup: a session that ended meanwhile gets no
// answer from it.
func (v *View) isClosed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

func (v *View) now() time.Time { return v.guard.conf.now() }

// found is a finding as one asker gets it.
type found struct {
	*finding
	ttl    time.Duration // what is left of it
	cached bool
}

// peek looks into the cache alone.
func (v *View) peek(key cacheKey) (found, bool) {
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	f, left := v.state.cache.get(key, v.now())
	return found{f, left, true}, f != nil
}

// lookup gives the finding for a question: from the cache, from a lookup under
// way, or from upstream.
func (v *View) lookup(ctx context.Context, host policy.Host, qtype uint16) (found, error) {
	key := cacheKey{host.Name(), qtype}
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return found{}, ErrClosed
	}
	// The cache is looked into while flights cannot end: a lookup that ends in
	// between would be missed in both places and made twice.
	if f, ok := v.peek(key); ok {
		v.mu.Unlock()
		return f, nil
	}
	fl := v.flights[key]
	if fl == nil {
		fl = v.start(ctx, key, host, qtype)
	}
	v.mu.Unlock()
	select {
	case <-fl.done:
		return found{fl.finding, fl.ttl, false}, nil
	case <-ctx.Done():
		// The lookup goes on: others may wait for it, and its answer is cached
		// for the client that asks again.
		return found{}, ctx.Err()
	case <-v.done:
		return found{}, ErrClosed
	}
}

// start begins a lookup. v.mu is held.
func (v *View) start(ctx context.Context, key cacheKey, host policy.Host, qtype uint16) *flight {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight{done: make(chan struct{}), cancel: cancel}
	v.flights[key] = fl
	v.wait.Go(func() {
		defer cancel()
		f := v.guard.find(ctx, host, qtype)
		ttl := v.guard.clamp(f)
		v.mu.Lock()
		defer v.mu.Unlock()
		// A closed view's lookup was cut short; its failure is not the name's, and
		// another view of the session may still use the cache.
		if !v.closed {
			v.state.mu.Lock()
			v.state.cache.put(key, f, ttl, v.now())
			v.state.mu.Unlock()
		}
		delete(v.flights, key)
		fl.finding, fl.ttl = f, ttl
		close(fl.done)
	})
	return fl
}

// find asks upstream and reads the answer.
func (g *Guard) find(ctx context.Context, host policy.Host, qtype uint16) *finding {
	reply, from, err := g.asker.exchange(ctx, host.Name(), qtype)
	if err != nil {
		return &finding{rcode: dns.RcodeServerFailure, err: err}
	}
	f := walk(reply, host, qtype, g.conf.MaxCNAME)
	f.upstream = from
	return f
}

// clamp bounds how long a finding holds.
func (g *Guard) clamp(f *finding) time.Duration {
	switch {
	case f.err != nil:
		return failureTTL
	case f.found():
		return min(max(f.ttl, g.conf.MinTTL), g.conf.MaxTTL)
	default:
		return min(max(f.ttl, g.conf.MinTTL), g.conf.NegTTL)
	}
}

// spend charges the session for a name that a wildcard rule allowed.
func (v *View) spend(name, rule string) (reason string, entropy bool) {
	pattern, ok := wildcard(rule)
	if !ok {
		return "", false
	}
	sub := subName(pattern, name)
	c := &v.guard.conf
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	return v.state.budget.spend(pattern, sub, c.WildcardNames, c.WildcardSub, c.WildcardBytes), highEntropy(sub)
}

// token takes one query from the session's rate, or says how long until there
// is one.
func (v *View) token() time.Duration {
	c := &v.guard.conf
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	return v.state.bucket.wait(v.now(), float64(c.QPS), float64(c.Burst))
}

// pin makes addrs the name's for their lifetime and the grace after it.
func (v *View) pin(name string, addrs []netip.Addr, ttl time.Duration) {
	if len(addrs) == 0 {
		return
	}
	now := v.now()
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	v.state.pins.add(name, addrs, now.Add(ttl+v.guard.conf.PinGrace), now)
}

// Pinned returns the addresses that were handed out for a name and still hold.
func (v *View) Pinned(name string) []netip.Addr {
	host, err := parseName(name)
	if err != nil {
		return nil
	}
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	return v.state.pins.of(host.Name(), v.now())
}

// NamesOf returns the names that an address is pinned to. A connection to a
// bare address counts as one to these names, and is refused without any.
func (v *View) NamesOf(addr netip.Addr) []string {
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	return v.state.pins.names(addr, v.now())
}

// Hold keeps the pin of an address while a connection to it lives, and reports
// whether there is one. The connection's end calls release, once.
func (v *View) Hold(name string, addr netip.Addr) (release func(), ok bool) {
	s, err := readName(name)
	if err != nil {
		return func() {}, false
	}
	if s.kind == kindLocalhost {
		// Its addresses are nobody's answer, and run out for nobody.
		return func() {}, slices.Contains(loopbacks, addr)
	}
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	p := v.state.pins.find(s.name, addr, v.now())
	if p == nil {
		return func() {}, false
	}
	p.holds++
	return sync.OnceFunc(func() {
		v.state.mu.Lock()
		defer v.state.mu.Unlock()
		p.holds--
	}), true
}

// FakeName returns the name behind a fake address of this session.
func (v *View) FakeName(addr netip.Addr) (string, bool) {
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	return v.state.fakes.name(addr)
}

// record reports one judged query.
func (v *View) record(ctx context.Context, r Record) {
	now := v.now()
	r.Duration, r.Time, r.Session = now.Sub(r.Time), now, v.state.id
	if r.Verdict != Allow {
		v.state.mu.Lock()
		ok, left := v.state.quiet.admit(r.Name, r.Reason, now)
		v.state.mu.Unlock()
		if !ok {
			return
		}
		r.Suppressed = left
	}
	report(ctx, &v.guard.conf, r)
}

// live are the pins of a name that the rules of the moment still allow.
func (v *View) live(set *policy.Set, target policy.Target, name string) []netip.Addr {
	v.state.mu.Lock()
	addrs := v.state.pins.of(name, v.now())
	v.state.mu.Unlock()
	return slices.DeleteFunc(addrs, func(addr netip.Addr) bool {
		return !set.DecideAddr(target, addr).Allowed
	})
}
