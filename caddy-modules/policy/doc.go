// Package policy decides where a sandboxed run may connect, and says why.
//
// It has one type for a destination, [Target], with a private constructor. Every
// path into the appliance (CONNECT, absolute-form HTTP, SOCKS, the DNS guard, the
// check command) parses its own bytes into a Target here, once, and whatever
// dials accepts nothing else. So there are never two parsers to disagree: a byte
// that only one of a matcher and a resolver would see (NUL, "@", "%2e", U+3002,
// an IPv6 zone, 0x7f.1) is refused before it can mean anything.
//
// A policy is four lists of rules, one rule a line:
//
//	HOST [PORT…] [http|https] [private] [tcp]
//
// HOST is an exact name, "*.example.com" (any depth below, never the apex),
// "bedrock.*.amazonaws.com" (exactly one label), an address or a CIDR prefix.
// Without ports an allowing rule means 80 and 443, except that a single address
// means every port: it names one machine, not a service of the web. A denying
// rule without ports means every port. "http" narrows a rule to plain HTTP and
// "https" to TLS on port 443, and is the port where none is named. "private" lets an allowed name resolve to
// a private or loopback address; "tcp" says that the tunnel need not carry TLS.
//
// [Compile] turns the lists into a [Set]. A decision is asked twice:
// [Set.Decide] before any lookup, so that a denied name costs no DNS query, and
// [Set.DecideAddr] for each address that the lookup gave and again when the
// socket is about to connect. The order never varies: listeners of the appliance
// itself and the always-deny list, then the deny list, then the allow list, and
// what no rule allows is refused. An empty list allows nothing.
//
// A Set never changes after it was made, and is safe for concurrent use. A
// decision allocates nothing; the sentence for a person is written only when
// somebody asks for [Decision.Reason].
//
// Everything fails closed: the zero Decision is a refusal, the zero Host and the
// zero Target are refused, and a nil Set refuses all.
package policy
