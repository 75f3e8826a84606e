package dnsguard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// secondFamily is how long a lookup that has IPv4 addresses waits for IPv6 ones.
// Some resolvers never answer AAAA; a connection must not pay for that.
const secondFamily = 150 * time.Millisecond

// loopbacks answer for localhost, whatever a hosts file or resolver says.
var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// Resolve looks up the addresses of a name, IPv4 first, for a connection of this
// session. The policy is asked before anything leaves and again about every
// address; one that it refuses spoils the whole answer, as it would on a second
// look. A *RefusedError is policy's no. Every other error is a failure to
// resolve, a *net.DNSError where the resolvers are to blame.
//
// While an earlier answer is pinned it stands in for one that does not come or
// is refused: a name that is being rebound keeps the addresses it was vetted for
// until they run out, and no others.
func (v *View) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	r := Record{Time: v.now(), Proto: "proxy", Type: "A+AAAA"}
	addrs, err := v.resolve(ctx, name, &r)
	r.Answers = addrs
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		r.Verdict, r.Reason, r.Detail = Deny, refused.Reason, refused.Detail
		if r.Reason == reasonName {
			r.Verdict = Error
		}
		if d := refused.Decision; d.Rule != "" {
			r.Rule, r.Source = d.Rule, d.Source
		}
	} else if err != nil {
		r.Verdict, r.Reason, r.Detail = Fail, reasonUpstream, err.Error()
	}
	// The session's end and a client that went away say nothing about the name.
	if !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
		v.record(ctx, r)
	}
	return addrs, err
}

// resolve is Resolve without the record's verdict; it fills in what else is known.
func (v *View) resolve(ctx context.Context, name string, r *Record) ([]netip.Addr, error) {
	r.Verdict = Allow
	if v.isClosed() {
		return nil, ErrClosed
	}
	s, err := readName(name)
	if err != nil {
		r.Name = shown(name)
		return nil, &RefusedError{Name: name, Reason: reasonName, Detail: err.Error()}
	}
	r.Name = s.name
	if s.kind == kindReverse || s.kind == kindSpecial {
		return nil, refused(s, reasonSpecial, s.why)
	}
	if suffix, ok := publicResolver(s.name); ok {
		return nil, refused(s, reasonResolver, resolverDetail(suffix))
	}
	var set *policy.Set
	var target policy.Target // stays zero without a policy to ask
	// One snapshot for the whole lookup: a reload in the middle must not have the
	// name judged by one policy and its addresses by another.
	if v.policy != nil {
		set = v.policy()
		allowed, d := permit(set, s.host)
		if t, ok := policy.Approval(ctx); ok && !d.Allowed && t.Host() == s.host {
			set, allowed = set.Approved(ctx), t
			d = set.Decide(t)
		}
		r.Rule, r.Source = d.Rule, d.Source
		if !d.Allowed {
			return nil, &RefusedError{Name: s.name, Reason: d.Code.String(), Detail: d.Reason(), Decision: d}
		}
		target = allowed
		reason := ""
		if reason, r.HighEntropy = v.spend(s.name, d.Rule); reason != "" {
			return nil, refused(s, reason, budgetDetail(reason, d.Rule))
		}
	}
	// Never asked for: what a resolver says of localhost is wrong or hostile
	// (RFC 6761 §6.3). The rule that allowed it needs the flag private.
	if s.kind == kindLocalhost {
		r.Reason = reasonLocal
		return slices.Clone(loopbacks), nil
	}
	// A pin stands in for trouble and for a rebound name. It does not for a name
	// that is gone, whose owner said so, nor for a caller that gave up.
	addrs, err := v.both(ctx, set, target, s, r)
	if err == nil || v.policy == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) || isNotFound(err) {
		return addrs, err
	}
	if pinned := v.live(set, target, s.name); len(pinned) > 0 {
		r.Detail = "the addresses of an earlier answer stand in: " + err.Error()
		return pinned, nil
	}
	return nil, err
}

// family is the answer for one address family.
type family struct {
	qtype uint16
	found
	vetted outcome
	err    error
}

// both looks up IPv4 and IPv6 addresses side by side. IPv4 comes first and does
// not wait long for IPv6; the reverse would leave a host without IPv6 routes with
// addresses that it cannot reach.
func (v *View) both(ctx context.Context, set *policy.Set, target policy.Target, s subject, r *Record) ([]netip.Addr, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan family, 2)
	asked := 0
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		if !v.guard.handsOut(qtype) {
			continue
		}
		asked++
		go func() { answers <- v.family(ctx, set, target, s.host, qtype) }()
	}
	var late <-chan time.Time
	var got [2]family // IPv4, IPv6
	have := 0
	for range asked {
		select {
		case f := <-answers:
			i := 0
			if f.qtype == dns.TypeAAAA {
				i = 1
			}
			got[i] = f
			have++
			if f.qtype == dns.TypeA && len(f.vetted.addrs) > 0 && have < asked {
				timer := time.NewTimer(v.guard.conf.secondFamily)
				defer timer.Stop()
				late = timer.C
			}
			continue
		case <-late:
		}
		break
	}
	return v.merge(got[:], s, r)
}

// family looks up one address family and puts it before the policy.
func (v *View) family(ctx context.Context, set *policy.Set, target policy.Target, host policy.Host, qtype uint16) family {
	out := family{qtype: qtype}
	// Only what goes upstream counts against the rate: proxies ask for the same
	// few names at every connection.
	if _, ok := v.peek(cacheKey{host.Name(), qtype}); !ok && v.policy != nil {
		if out.err = v.await(ctx); out.err != nil {
			return out
		}
	}
	if out.found, out.err = v.lookup(ctx, host, qtype); out.err != nil {
		return out
	}
	out.vetted = v.guard.vet(set, target, out.finding, Reject)
	return out
}

// await waits for the session's rate to allow one more query: a burst of
// connections is slowed down, not broken.
func (v *View) await(ctx context.Context) error {
	for {
		pause := v.token()
		if pause == 0 {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-v.done:
			timer.Stop()
			return ErrClosed
		}
	}
}

// merge makes one answer of the families: a refusal of either refuses both, a
// failure of one leaves the other.
func (v *View) merge(got []family, s subject, r *Record) ([]netip.Addr, error) {
	var addrs []netip.Addr
	var failure error
	for _, f := range got {
		if f.finding != nil {
			r.Upstream, r.Cached = f.upstream, f.cached
		}
		switch {
		case f.err != nil:
			failure = errors.Join(failure, f.err)
		case f.finding == nil: // not asked, or too late
		case f.vetted.verdict == Deny:
			e := refused(s, f.vetted.reason, f.vetted.detail)
			if !f.vetted.decision.Target().IsZero() {
				e.Decision = f.vetted.decision
			}
			e.Addrs = f.vetted.refused
			return nil, e
		case f.vetted.verdict == Fail:
			failure = errors.Join(failure, lookupError(s.name, f.finding))
		default:
			addrs = append(addrs, f.vetted.addrs...)
		}
	}
	// Pinned are the addresses that are handed out, each for its own family's
	// lifetime; what was refused or came too late is not among them.
	if len(addrs) > 0 {
		for _, f := range got {
			if f.finding != nil && f.vetted.verdict == Allow {
				v.pin(s.name, f.vetted.addrs, f.ttl)
			}
		}
		return addrs, nil
	}
	if failure == nil {
		return nil, &net.DNSError{Err: "no such host", Name: s.name, IsNotFound: true}
	}
	return nil, failure
}

// lookupError says that the resolvers are to blame, in the type that net uses, so
// that callers tell a timeout from a refusal and both from a missing name.
func lookupError(name string, f *finding) error {
	var timeout net.Error
	return &net.DNSError{
		UnwrapErr: f.err, Err: f.err.Error(), Name: name, IsTemporary: true,
		IsTimeout: errors.As(f.err, &timeout) && timeout.Timeout() || errors.Is(f.err, context.DeadlineExceeded),
	}
}

// isNotFound reports a name without addresses.
func isNotFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}

// budgetDetail explains a spent budget.
func budgetDetail(reason, rule string) string {
	switch reason {
	case reasonWildcardUnique:
		return "this session has used up the different names that the rule " + rule + " lets it look up; list the names it needs"
	case reasonWildcardSub:
		return "the part of the name that the rule " + rule + " leaves open is too long; list the name itself"
	default:
		return "this session has used up the characters that it may put into names under wildcard rules; list the names it needs"
	}
}
