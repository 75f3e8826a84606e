package dnsguard

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"postern/caddy-modules/policy"
)

// RefusedError is a lookup that policy refuses: by the lists, by a budget or by
// what the answer pointed at. It is not a failure to resolve, so a proxy says
// 403 and not 502, and trying again does not help.
type RefusedError struct {
	Name   string // canonical
	Reason string // as in Record
	Detail string // one line of printable ASCII for a person
	// Decision is the policy's, where it was the policy that refused. Where the
	// guard's own rules did, it is one with the code name_refused.
	Decision policy.Decision
	// Addrs are the refused addresses, when there were any.
	Addrs []netip.Addr
}

// Error is one line for a person.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refuse to look up %q: %s", shown(e.Name), e.Detail)
}

// refused makes the error of a refusal by the guard's own rules.
func refused(s subject, reason, detail string) *RefusedError {
	e := &RefusedError{Name: s.name, Reason: reason, Detail: detail}
	if target, err := policy.NewTarget(s.host, lookupPorts[0], policy.SchemeTCP); err == nil {
		e.Decision = policy.RefuseName(target, detail)
	}
	return e
}

// ErrClosed is the error of a session that is over.
var ErrClosed = errors.New("the session is over")

// lookupPorts are the ports a name is asked for; the rule itself may name more.
var lookupPorts = [...]uint16{443, 80, 22}

// Named reports whether a name is one that a policy opens, on whatever port, or that an
// approver may open: one that sessions of the policy are told of, and mean by its
// addresses. A connection to it is judged by its own port.
func Named(set *policy.Set, name string) bool {
	host, err := policy.ParseName(name)
	if err != nil {
		return false
	}
	_, d := permit(set, host)
	return d.Allowed || d.Code == policy.AskFirst
}

// permit asks the policy about a name. A lookup is for no port, so one port that
// the lists allow is enough; the proxies ask again about the port they dial. The
// target returned is one that is allowed; when none is, the decision says why
// the first was not, or that an approver may open one.
func permit(set *policy.Set, host policy.Host) (policy.Target, policy.Decision) {
	var first policy.Decision
	try := func(port uint16) (policy.Target, policy.Decision, bool) {
		target, err := policy.TunnelTarget(host, port)
		if err != nil {
			return policy.Target{}, policy.Decision{}, false
		}
		d := set.Decide(target)
		if d.Code == policy.SchemeNotAllowed && target.Scheme() == policy.SchemeTCP {
			// A rule for plain HTTP is enough: the lookup is for no scheme either.
			if plain, err := policy.NewTarget(host, port, policy.SchemeHTTP); err == nil {
				if d := set.Decide(plain); d.Allowed {
					return plain, d, true
				}
			}
		}
		return target, d, d.Allowed
	}
	asks := func(d policy.Decision) {
		if d.Code == policy.AskFirst && first.Code != policy.AskFirst {
			first = d
		}
	}
	for i, port := range lookupPorts {
		target, d, ok := try(port)
		if ok {
			return target, d
		}
		if i == 0 {
			first = d
		}
		asks(d)
		if d.Code != policy.PortNotAllowed {
			continue
		}
		for _, port := range rulePorts(d.Rule) {
			target, d, ok := try(port)
			if ok {
				return target, d
			}
			asks(d)
		}
	}
	return policy.Target{}, first
}

// rulePorts reads the ports out of a rule's canonical text.
func rulePorts(rule string) []uint16 {
	var ports []uint16
	for i, field := range strings.Fields(rule) {
		if i == 0 {
			continue
		}
		if port, err := policy.ParsePort(field); err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}

// wildcard returns the pattern of a rule's canonical text when it has a star.
func wildcard(rule string) (pattern string, ok bool) {
	pattern, _, _ = strings.Cut(rule, " ")
	return pattern, strings.Contains(pattern, "*")
}

// outcome is what policy makes of a finding.
type outcome struct {
	verdict  Verdict
	reason   string
	detail   string
	decision policy.Decision // of a refusal by the policy
	addrs    []netip.Addr
	services []service
	refused  []netip.Addr
}

// vet puts a finding before the policy: every hop of its chain, every address.
// target is one that the policy allows; its zero value means that the caller
// vets by itself (Guard.Resolve).
func (g *Guard) vet(set *policy.Set, target policy.Target, f *finding, private string) outcome {
	if f.err != nil {
		return outcome{verdict: Fail, reason: reasonUpstream, detail: f.err.Error()}
	}
	if target.IsZero() {
		return outcome{verdict: Allow, addrs: f.addrs}
	}
	// The chain first: a refused hop says more than the address behind it.
	for _, hop := range f.hops {
		if suffix, ok := publicResolver(hop.Name()); ok {
			return outcome{verdict: Deny, reason: reasonChain, detail: resolverDetail(suffix)}
		}
		if d, ok := g.hopAllowed(set, target, hop); !ok {
			return outcome{verdict: Deny, reason: reasonChain, decision: d, detail: "it is an alias: " + d.Reason()}
		}
	}
	out := outcome{verdict: Allow}
	for _, s := range f.services {
		if s.target.IsZero() || serviceAllowed(set, s) {
			out.services = append(out.services, s)
		}
	}
	if len(f.services) > 0 && len(out.services) == 0 {
		return outcome{verdict: Deny, reason: reasonTarget, detail: "no rule allows any target of its service records"}
	}
	for _, addr := range f.addrs {
		if d := set.DecideAddr(target, addr); d.Allowed {
			out.addrs = append(out.addrs, addr)
		} else {
			if len(out.refused) == 0 {
				out.decision = d
			}
			out.refused = append(out.refused, addr)
		}
	}
	if len(out.refused) > 0 && (private == Reject || len(out.addrs) == 0) {
		out.verdict, out.reason, out.detail, out.addrs = Deny, reasonRebind, out.decision.Reason(), nil
		return out
	}
	if len(out.addrs) > g.conf.MaxAnswers {
		out.addrs = out.addrs[:g.conf.MaxAnswers]
	}
	return out
}

// hopAllowed judges one CNAME target.
func (g *Guard) hopAllowed(set *policy.Set, target policy.Target, hop policy.Host) (policy.Decision, bool) {
	if g.conf.CNAME == Strict {
		_, d := permit(set, hop)
		return d, d.Allowed
	}
	next, err := policy.NewTarget(hop, target.Port(), target.Scheme())
	if err != nil {
		return policy.Decision{}, false
	}
	// Whoever owns the asked name chose the hop, so it need not be listed; but
	// what is denied by name is not reached under another name.
	d := set.Decide(next)
	return d, d.Allowed || d.Code != policy.Denied && d.Code != policy.AlwaysDenied && d.Code != policy.OwnListener
}

// serviceAllowed judges a service target by its own name and port: the owner of
// the asked name may point at services that are allowed anyway, at no other.
func serviceAllowed(set *policy.Set, s service) bool {
	target, err := policy.TunnelTarget(s.target, s.port)
	return err == nil && set.Decide(target).Allowed
}

func resolverDetail(name string) string {
	return strconv.Quote(name) + " is a public resolver, which would answer past the rules of this session"
}
