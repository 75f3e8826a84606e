package proxy

import "postern/caddy-modules/policy"

// HelloVerdict is what the look at the first bytes of a tunnel came to: at a
// ClientHello, or on port 80 at the head of each request.
type HelloVerdict uint8

// The verdicts. All but the first two are refusals: those of a ClientHello while
// Server.SNI is SNIEnforce, the others always.
const (
	HelloNone        HelloVerdict = iota // not looked at: an address, the flag tcp, SNIOff; no byte came; or nothing that names a host
	HelloOK                              // the server name is the host that was judged
	HelloMismatch                        // it is another one, the outer name of ECH included
	HelloNoName                          // there is none, though the target is a name
	HelloNotTLS                          // the first bytes are no ClientHello
	HelloMalformed                       // the ClientHello breaks the grammar, or the client left inside it
	HelloTooLarge                        // longer than Limits.HelloSize
	HelloTimeout                         // not complete within Limits.Hello
	HelloForeignHost                     // a request in a tunnel to port 80 is for another host
	HelloNotHTTP                         // what came in a tunnel to port 80 is neither HTTP/1 nor TLS
)

var hellos = [...]struct{ code, sentence string }{
	HelloNone:        {"", ""},
	HelloOK:          {"", ""},
	HelloMismatch:    {"sni_mismatch", "its ClientHello names another server"},
	HelloNoName:      {"sni_missing", "its ClientHello names no server"},
	HelloNotTLS:      {"not_tls", "what came is not TLS"},
	HelloMalformed:   {"hello_malformed", "its ClientHello is malformed or incomplete"},
	HelloTooLarge:    {"hello_too_large", "its ClientHello is too large"},
	HelloTimeout:     {"hello_timeout", "no complete ClientHello came in time"},
	HelloForeignHost: {"host_mismatch", "a request in it is for another host"},
	HelloNotHTTP:     {"not_http", "what came is not HTTP/1"},
}

// Refuses says that the verdict is none of the good ones.
func (h HelloVerdict) Refuses() bool { return h > HelloOK }

// String is the stable word of a refusal, "" otherwise.
func (h HelloVerdict) String() string {
	if int(h) < len(hellos) {
		return hellos[h].code
	}
	return "hello_unknown"
}

// verdict is the whole judgement on one request: that of the policy, and in a
// tunnel that on what it carries. The zero verdict is a refusal.
type verdict struct {
	target   policy.Target
	decision policy.Decision
	hello    HelloVerdict
	local    bool
}

// byHello says that what the tunnel carries was refused, not only noted.
func (v verdict) byHello() bool { return v.hello.Refuses() && !v.decision.Allowed }

func (v verdict) code() string {
	if v.byHello() {
		return v.hello.String()
	}
	return v.decision.Code.String()
}

func (v verdict) reason() string {
	switch {
	case v.local:
		return v.target.String() + " is answered by this appliance"
	case !v.byHello():
		return v.decision.Reason()
	}
	sentence := "what it carries was refused"
	if int(v.hello) < len(hellos) {
		sentence = hellos[v.hello].sentence
	}
	must := "TLS in a tunnel must be"
	switch v.target.Port() {
	case tlsPort:
		must = "a tunnel to port 443 must carry TLS"
	case httpPort:
		must = "a tunnel to port 80 must carry HTTP"
	}
	return v.target.String() + " is refused: " + must + " for " + v.target.Host().String() +
		", but " + sentence + "; if that is meant, add the flag tcp to the rule " + ruleText(v.decision)
}
