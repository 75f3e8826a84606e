package dnsguard

import (
	"github.com/miekg/dns"
)

// question is a query that is well-formed enough to be judged.
type question struct {
	subject
	text  string // the name as it was asked, to be repeated in the answer
	qtype uint16
	opt   *dns.OPT // the client's, nil without EDNS
}

// inspect checks the shape of a message: what can be refused without knowing any
// rule. It never looks at more than the question and the OPT record, since
// nothing else of a query is ever used.
func inspect(req *dns.Msg) (question, *answer) {
	var q question
	malformed := func(rcode int, reason, detail string) (question, *answer) {
		return q, &answer{rcode: rcode, verdict: Error, reason: reason, detail: detail}
	}
	if len(req.Question) > 0 {
		q.text, q.qtype = req.Question[0].Name, req.Question[0].Qtype
		q.name = shown(q.text)
	}
	// The OPT record comes first, since every reply to a client that sent one has
	// one (RFC 6891 §6.1.1).
	stray := false
	for _, rr := range req.Extra {
		opt, ok := rr.(*dns.OPT)
		if !ok || q.opt != nil || opt.Hdr.Name != "." {
			stray = true
			continue
		}
		q.opt = opt
	}
	if req.Opcode != dns.OpcodeQuery {
		return malformed(dns.RcodeNotImplemented, reasonOpcode, "only the opcode QUERY is served")
	}
	if len(req.Question) != 1 {
		// RFC 9619. Answering the first of several would judge one name and
		// let the others be taken for judged.
		return malformed(dns.RcodeFormatError, reasonShape, "a query has exactly one question")
	}
	if len(req.Answer)+len(req.Ns) > 0 {
		return malformed(dns.RcodeFormatError, reasonShape, "a query has no answer and authority records")
	}
	if stray {
		return malformed(dns.RcodeFormatError, reasonShape, "a query has no additional record but one OPT")
	}
	if q.opt != nil && q.opt.Version() != 0 {
		return malformed(dns.RcodeBadVers, reasonVersion, "only EDNS version 0 is served")
	}
	if !req.RecursionDesired {
		return malformed(dns.RcodeRefused, reasonShape, "a query without RD asks what is cached, which is not told")
	}
	if req.Question[0].Qclass != dns.ClassINET {
		return q, &answer{rcode: dns.RcodeRefused, verdict: Deny, reason: reasonClass, detail: "only the class IN is served"}
	}
	s, err := readName(q.text)
	if err != nil {
		return malformed(dns.RcodeRefused, reasonName, err.Error())
	}
	q.subject = s
	return q, nil
}

// judgeType sorts a record type that is not handed out. Types that hold data are
// answered with nothing, so that clients go on to A and AAAA; what only servers
// and tunnels ask for is refused.
func judgeType(qtype uint16) *answer {
	switch {
	case qtype == dns.TypeANY:
		// RFC 8482 lets a server not implement it.
		return &answer{rcode: dns.RcodeNotImplemented, verdict: Deny, reason: reasonType, detail: "ANY is not served"}
	case qtype == dns.TypeNone, qtype == dns.TypeNULL, qtype == dns.TypeOPT, qtype >= 100 && qtype <= 103,
		qtype >= 128 && qtype <= 255, qtype == dns.TypeReserved, !known(qtype):
		return &answer{rcode: dns.RcodeRefused, verdict: Deny, reason: reasonType, ede: dns.ExtendedErrorCodeProhibited, detail: "this record type is not served"}
	case qtype == dns.TypeHTTPS, qtype == dns.TypeSVCB:
		// Browsers and curl ask for these beside every A and AAAA. They can name
		// other targets and ports, address hints and ECH keys (RFC 9460, RFC
		// 9849), so they stay empty; the connection they are for is not denied.
		return &answer{rcode: dns.RcodeSuccess, verdict: Allow, reason: reasonType, ede: dns.ExtendedErrorCodeFiltered, detail: "service bindings are not handed out"}
	default:
		return &answer{rcode: dns.RcodeSuccess, verdict: Deny, reason: reasonType, ede: dns.ExtendedErrorCodeFiltered, detail: "this record type is not handed out"}
	}
}

func known(qtype uint16) bool {
	_, ok := dns.TypeToString[qtype]
	return ok
}
