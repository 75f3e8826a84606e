package dnsguard

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// maxAddrs bounds the addresses taken from one reply. A message may carry some
// thousand; those beyond are dropped unseen, never shown, never pinned.
const maxAddrs = 256

var (
	errLoop  = errors.New("the CNAME chain loops")
	errLong  = errors.New("the CNAME chain is too long")
	errFork  = errors.New("a name has two different CNAMEs")
	errChain = errors.New("the CNAME chain leads to a name that is no host")
)

// finding is what one upstream reply says about a question, before any policy:
// the part of it that hangs together. Findings are cached; what policy makes of
// them is decided at each use, so that changed rules hold at once.
type finding struct {
	rcode    int           // NOERROR or NXDOMAIN
	hops     []policy.Host // CNAME targets in order
	addrs    []netip.Addr  // of the asked type, at the end of the chain
	services []service     // of an SRV question
	stray    bool          // there were records of the asked type off the chain
	ttl      time.Duration
	upstream string
	err      error // a reply that answers nothing (errLoop …), or no reply at all
}

// service is the content of an SRV record (RFC 2782).
type service struct {
	priority, weight, port uint16
	target                 policy.Host // zero: decidedly not available here
}

// found reports whether there is something to answer with.
func (f *finding) found() bool { return len(f.addrs) > 0 || len(f.services) > 0 }

// walk follows the CNAME chain from the asked name through the answer section,
// whatever the order of its records, and gathers what it leads to. Records whose
// owner is not on the chain are not looked at: an answer about another name is
// how caches are poisoned. Authority and additional sections are not read but
// for the SOA that limits a negative answer.
func walk(reply *dns.Msg, host policy.Host, qtype uint16, maxHops int) *finding {
	f := &finding{rcode: reply.Rcode, ttl: maxDuration}
	owners := make(map[policy.Host][]dns.RR, 4)
	for _, rr := range reply.Answer {
		if rr.Header().Class != dns.ClassINET {
			continue
		}
		switch rr.Header().Rrtype {
		case qtype, dns.TypeCNAME:
			// A name that is no host owns nothing on a chain of hosts.
			if owner, err := parseName(rr.Header().Name); err == nil {
				owners[owner] = append(owners[owner], rr)
			}
		}
	}
	onChain := map[policy.Host]bool{host: true}
	for at := host; ; {
		f.take(owners[at], qtype)
		next, ttl, err := target(owners[at])
		if f.found() {
			next = policy.Host{} // data beside a CNAME ends the chain: nothing below was asked for
		}
		if err == nil && next.IsZero() {
			break
		}
		switch {
		case err != nil:
		case onChain[next]:
			err = errLoop
		case len(f.hops) == maxHops:
			err = errLong
		}
		if err != nil {
			return &finding{rcode: dns.RcodeServerFailure, err: err}
		}
		f.ttl = min(f.ttl, ttl)
		f.hops = append(f.hops, next)
		onChain[next] = true
		at = next
	}
	for owner, records := range owners {
		if !onChain[owner] && slices.ContainsFunc(records, func(rr dns.RR) bool { return rr.Header().Rrtype == qtype }) {
			f.stray = true
		}
	}
	if f.rcode == dns.RcodeNameError {
		f.addrs, f.services = nil, nil // a name that does not exist has no records
	}
	if !f.found() {
		f.ttl = min(f.ttl, negativeTTL(reply))
	}
	return f
}

// take gathers the records of the asked type at the chain's present end.
func (f *finding) take(records []dns.RR, qtype uint16) {
	for _, rr := range records {
		if rr.Header().Rrtype != qtype {
			continue
		}
		switch rr := rr.(type) {
		case *dns.A:
			addr, ok := netip.AddrFromSlice(rr.A.To4())
			f.addAddr(addr, ok, rr.Hdr.Ttl)
		case *dns.AAAA:
			addr, ok := netip.AddrFromSlice(rr.AAAA.To16())
			f.addAddr(addr, ok, rr.Hdr.Ttl)
		case *dns.SRV:
			host, err := parseName(rr.Target)
			if err != nil && rr.Target != "." || len(f.services) == maxAddrs {
				continue
			}
			f.services = append(f.services, service{rr.Priority, rr.Weight, rr.Port, host})
			f.ttl = min(f.ttl, seconds(rr.Hdr.Ttl))
		}
	}
}

func (f *finding) addAddr(addr netip.Addr, ok bool, ttl uint32) {
	if !ok || len(f.addrs) == maxAddrs || slices.Contains(f.addrs, addr) {
		return
	}
	f.addrs = append(f.addrs, addr)
	f.ttl = min(f.ttl, seconds(ttl))
}

// target returns the name that the CNAMEs among records point to, zero without
// any. Two equal ones count as one; two that differ leave no chain to vet.
func target(records []dns.RR) (policy.Host, time.Duration, error) {
	next, ttl := policy.Host{}, maxDuration
	for _, rr := range records {
		cname, ok := rr.(*dns.CNAME)
		if !ok {
			continue
		}
		to, err := parseName(cname.Target)
		switch {
		case err != nil || to.Name() == "":
			return policy.Host{}, 0, errChain
		case !next.IsZero() && to != next:
			return policy.Host{}, 0, errFork
		}
		next, ttl = to, min(ttl, seconds(cname.Hdr.Ttl))
	}
	return next, ttl, nil
}

// negativeTTL is how long the absence in reply may be kept (RFC 2308 §5): the
// lesser of the SOA's own TTL and its MINIMUM; without a SOA, nothing.
func negativeTTL(reply *dns.Msg) time.Duration {
	for _, rr := range reply.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(seconds(soa.Hdr.Ttl), seconds(soa.Minttl))
		}
	}
	return 0
}

const maxDuration = time.Duration(1<<63 - 1)

// seconds reads a TTL. One with the top bit set counts as zero (RFC 2181 §8).
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}
