package dnsguard

import (
	"context"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// Transports of View.Answer.
const (
	UDP = "udp"
	TCP = "tcp"
)

// localTTL is how long an answer that is made here holds.
const localTTL = 300 * time.Second

// answer is what is said to one question, before it is a message.
type answer struct {
	rcode    int
	addrs    []netip.Addr
	services []service
	names    []string // of a reverse question
	ttl      time.Duration
	ede      uint16 // RFC 8914 code of an explanation; 0 for none

	verdict  Verdict
	reason   string
	code     string
	detail   string
	rule     string
	source   string
	upstream string
	cached   bool
	entropy  bool
}

// Answer judges one message of the session's stub server and gives the reply to
// send, nil for none. proto is UDP or TCP and bounds the reply's size. It does
// not return before the context ends only if upstream answers, so the caller
// sets a deadline or takes Config.TotalTimeout for one.
//
// The reply holds the question as asked, addresses under that name, and an OPT
// record with an explanation if the client sent one. Nothing that an upstream
// wrote is copied but addresses (and service targets where SRV is on).
func (v *View) Answer(ctx context.Context, req *dns.Msg, proto string) *dns.Msg {
	start := v.now()
	// A response sent as a query is dropped: answering could start a loop
	// between two servers.
	if req == nil || req.Response || v.isClosed() {
		return nil
	}
	q, a := inspect(req)
	// From here on the message itself is not looked at again: the question is
	// all that is taken from it.
	if a == nil {
		a = v.judge(ctx, q)
	}
	if v.isClosed() {
		return nil
	}
	v.record(ctx, Record{
		Time: start, Proto: proto, Name: q.name, Type: dns.Type(q.qtype).String(),
		Verdict: a.verdict, Reason: a.reason, Code: a.code, Detail: a.detail, Rule: a.rule, Source: a.source,
		Rcode: rcodeText(a.rcode), Answers: a.addrs, Upstream: a.upstream, Cached: a.cached, HighEntropy: a.entropy,
	})
	return v.guard.message(req, q, a, proto)
}

// deny is a refusal by policy.
func (g *Guard) deny(ede uint16, reason, detail string) *answer {
	return &answer{rcode: g.denyRcode, ede: ede, verdict: Deny, reason: reason, detail: detail, ttl: g.conf.MinTTL}
}

// judge answers a well-formed question. The order is that of the package
// comment: what refuses first is all that happens.
func (v *View) judge(ctx context.Context, q question) *answer {
	g := v.guard
	switch q.kind {
	case kindLocalhost:
		return localhost(q.qtype)
	case kindReverse:
		return v.reverse(q)
	case kindSpecial, kindSingle:
		// A local host may have a name that never leaves, like git.internal.
		if _, local := g.localHosts[q.host]; !local || !v.fake {
			return &answer{rcode: dns.RcodeNameError, verdict: Deny, reason: reasonSpecial, detail: q.why, ttl: g.conf.NegTTL}
		}
	case kindGlobal:
	}
	// Before the lists: no allow rule, however exact, opens another resolver.
	if suffix, ok := publicResolver(q.name); ok {
		return g.deny(dns.ExtendedErrorCodeBlocked, reasonResolver, resolverDetail(suffix))
	}
	if _, local := g.localHosts[q.host]; local && v.fake {
		return v.faked(q, false)
	}
	if v.policy == nil {
		return g.deny(dns.ExtendedErrorCodeBlocked, reasonClosed, "there is no session to answer for")
	}
	// One snapshot: name, chain and addresses are judged by the same rules.
	set := v.policy()
	target, d := permit(set, q.host)
	if d.Code == policy.AskFirst && !d.Allowed && v.fake {
		return v.held(q, d)
	}
	if !d.Allowed {
		a := g.deny(dns.ExtendedErrorCodeBlocked, d.Code.String(), d.Reason())
		a.rule, a.source = d.Rule, d.Source
		return a
	}
	a := v.allowed(q)
	if a == nil {
		a = v.spendOn(q, d.Rule)
	}
	if a == nil {
		if v.fake {
			// Charged all the same: the connection to the fake address resolves
			// the name, and a name must not be free on one of the two ways. Where
			// refusals are only reported there may be no rule to charge.
			a = v.faked(q, d.Rule == "")
		} else {
			f, err := v.lookup(ctx, q.host, q.qtype)
			if err != nil {
				a = failed(err.Error())
			} else {
				a = v.conclude(q, f, g.vet(set, target, f.finding, g.conf.Private))
			}
		}
		if pattern, ok := wildcard(d.Rule); ok {
			a.entropy = highEntropy(subName(pattern, q.name))
		}
	}
	if a.rule == "" {
		a.rule, a.source = d.Rule, d.Source
	}
	return a
}

// held answers for a name that an approver may open: the connection to the
// made-up address is what he is asked about. Nothing is looked up before.
func (v *View) held(q question, d policy.Decision) *answer {
	a := v.allowed(q)
	if a == nil {
		_, star := wildcard(d.Rule)
		a = v.faked(q, star || d.Rule == "")
	}
	if a.rule == "" {
		a.rule, a.source = d.Rule, d.Source
	}
	return a
}

// allowed goes on with a question whose name the policy allows, as far as no
// lookup is needed: nil says that one is.
func (v *View) allowed(q question) *answer {
	if !v.guard.handsOut(q.qtype) {
		return judgeType(q.qtype)
	}
	// Cached answers count too, unlike in Resolve: each is a message in and one
	// out, and this bounds both. Denied names do not: they cost no lookup, and a
	// client that asks for many must not lose those it may ask for.
	if v.token() > 0 {
		return &answer{
			rcode: dns.RcodeRefused, ede: dns.ExtendedErrorCodeProhibited, verdict: Deny,
			reason: reasonRate, detail: "this session asks for more names a second than it may",
		}
	}
	return nil
}

// spendOn charges the wildcard budget; nil says that it was not spent.
func (v *View) spendOn(q question, rule string) *answer {
	reason, _ := v.spend(q.name, rule)
	if reason == "" {
		return nil
	}
	return v.guard.deny(dns.ExtendedErrorCodeProhibited, reason, budgetDetail(reason, rule))
}

// conclude turns a vetted finding into an answer and pins its addresses.
func (v *View) conclude(q question, f found, out outcome) *answer {
	g := v.guard
	a := &answer{upstream: f.upstream, cached: f.cached}
	switch out.verdict {
	case Fail:
		failure := failed(out.detail)
		failure.upstream, failure.cached = a.upstream, a.cached
		return failure
	case Deny:
		ede := dns.ExtendedErrorCodeFiltered
		if out.reason == reasonChain {
			ede = dns.ExtendedErrorCodeBlocked
		}
		refused := g.deny(ede, out.reason, out.detail)
		refused.upstream, refused.cached = a.upstream, a.cached
		refused.rule, refused.source = out.decision.Rule, out.decision.Source
		if out.reason == reasonRebind {
			refused.code = out.decision.Code.String()
		}
		return refused
	default:
	}
	a.verdict, a.rcode, a.ttl = Allow, f.rcode, f.ttl
	a.addrs, a.services = out.addrs, out.services
	if len(a.addrs)+len(a.services) == 0 && f.stray {
		// All the reply had was about other names: answered as nothing, and said
		// to be so, since an honest resolver does not do that.
		a.verdict, a.reason, a.ede = Deny, reasonStray, dns.ExtendedErrorCodeFiltered
		a.detail = "the upstream answer was about other names"
	}
	v.pin(q.name, a.addrs, f.ttl)
	return a
}

// failed is an answer that no upstream gave. It has no TTL, so that no client
// keeps it.
func failed(detail string) *answer {
	return &answer{
		rcode: dns.RcodeServerFailure, ede: dns.ExtendedErrorCodeNetworkError,
		verdict: Fail, reason: reasonUpstream, detail: detail,
	}
}

// localhost answers for this machine as seen from where the client is.
func localhost(qtype uint16) *answer {
	a := &answer{rcode: dns.RcodeSuccess, verdict: Allow, reason: reasonLocal, ttl: localTTL}
	switch qtype {
	case dns.TypeA:
		a.addrs = loopbacks[:1]
	case dns.TypeAAAA:
		a.addrs = loopbacks[1:]
	default:
	}
	return a
}

// reverse answers from what this session was told: the names of an address that
// is pinned or fake. A reverse query that went out could carry data as well as
// any other.
func (v *View) reverse(q question) *answer {
	a := &answer{rcode: dns.RcodeSuccess, verdict: Allow, reason: reasonLocal, ttl: v.guard.conf.MinTTL}
	if addr, ok := reverseAddr(q.name); ok {
		if name, fake := v.FakeName(addr); fake {
			a.names = []string{name}
		} else if addr.IsLoopback() {
			a.names = []string{"localhost"}
		} else {
			a.names = v.NamesOf(addr)
		}
	}
	if len(a.names) == 0 {
		return &answer{rcode: dns.RcodeNameError, verdict: Deny, reason: reasonSpecial, detail: q.why, ttl: v.guard.conf.NegTTL}
	}
	if q.qtype != dns.TypePTR {
		a.names = nil
	}
	return a
}

// faked answers with the address that stands for the name in this session. loose is
// that of fakes.of.
func (v *View) faked(q question, loose bool) *answer {
	a := &answer{rcode: dns.RcodeSuccess, verdict: Allow, reason: reasonLocal, ttl: v.guard.conf.MinTTL}
	if q.qtype != dns.TypeA && (q.qtype != dns.TypeAAAA || !v.fake6) {
		return a
	}
	v.state.mu.Lock()
	place, ok := v.state.fakes.of(q.name, loose)
	v.state.mu.Unlock()
	if !ok {
		full := failed("no fake address is left for this session")
		full.reason = reasonFull
		return full
	}
	if q.qtype == dns.TypeA {
		a.addrs = []netip.Addr{fakeAddr(place)}
	} else {
		a.addrs = []netip.Addr{fakeAddr6(place)}
	}
	return a
}
