package policy

import (
	"net/netip"
	"strconv"
	"strings"
)

// Scheme is what the client said the connection is for. It tells the relay what it may
// expect inside, and matters to rules for one scheme alone.
type Scheme uint8

// The schemes of a Target.
const (
	SchemeTCP  Scheme = iota // a tunnel of unknown content (CONNECT, SOCKS)
	SchemeHTTP               // plain HTTP that the proxy itself forwards
	SchemeTLS                // a tunnel that must carry TLS
)

// String is "tcp", "http" or "tls".
func (s Scheme) String() string {
	switch s {
	case SchemeTCP:
		return "tcp"
	case SchemeHTTP:
		return "http"
	case SchemeTLS:
		return "tls"
	default:
		return "scheme(" + strconv.Itoa(int(s)) + ")"
	}
}

func (s Scheme) sentence() string {
	switch s {
	case SchemeHTTP:
		return "in plain HTTP"
	case SchemeTLS:
		return "over TLS"
	case SchemeTCP:
		fallthrough
	default:
		return "through a tunnel that may carry anything"
	}
}

// Target is a destination: a canonical host, a port and a scheme. Only this
// package makes one, so whoever holds a Target holds parsed text. Two targets
// are the same exactly when they are ==. The zero Target is refused everywhere.
type Target struct {
	host   Host
	port   uint16
	scheme Scheme
}

// NewTarget refuses the zero Host and port 0 (which a kernel would replace).
func NewTarget(h Host, port uint16, s Scheme) (Target, error) {
	if h.IsZero() {
		return Target{}, malformed("", "is no host: it is empty")
	}
	if port == 0 {
		return Target{}, malformed("0", "is no port: 1 to 65535")
	}
	return Target{host: h, port: port, scheme: s}, nil
}

// TunnelTarget is a tunnel to a host and port, with the scheme that it is held to: TLS
// on port 443, plain requests on port 80 of a name, and elsewhere nothing.
func TunnelTarget(h Host, port uint16) (Target, error) {
	scheme := SchemeTCP
	switch {
	case port == httpsPort:
		scheme = SchemeTLS
	case port == httpPort && h.name != "":
		scheme = SchemeHTTP
	}
	return NewTarget(h, port, scheme)
}

// ParseTarget reads the authority-form of CONNECT, HOST:PORT (RFC 9110 section
// 7.1), with IPv6 in brackets (RFC 3986 section 3.2.2). The port must be there:
// guessing it would open another port than a stricter client meant. Everything
// else, user information and a scheme before it included, gives a *SyntaxError.
func ParseTarget(authority string, s Scheme) (Target, error) {
	return parseTarget(authority, 0, s)
}

// ParseTargetOr is ParseTarget for the authority of an absolute-form URI, where
// the port may be left out together with its colon and is then port.
func ParseTargetOr(authority string, port uint16, s Scheme) (Target, error) {
	if port == 0 {
		return Target{}, malformed(authority, "has no port and there is no default for it")
	}
	return parseTarget(authority, port, s)
}

func parseTarget(authority string, port uint16, s Scheme) (Target, error) {
	host, portText, hasPort := splitAuthority(authority)
	if host == "" {
		return Target{}, malformed(authority, "names no host")
	}
	var h Host
	var err error
	if host[0] == '[' {
		h, err = ParseHost(host)
	} else {
		// An IPv6 address without brackets cannot be told from its port.
		h, err = ParseName(host)
	}
	if err != nil {
		return Target{}, err
	}
	if hasPort {
		port, err = ParsePort(portText)
		if err != nil {
			return Target{}, err
		}
	}
	if port == 0 {
		return Target{}, malformed(authority, "names no port: write HOST:PORT")
	}
	return NewTarget(h, port, s)
}

// splitAuthority cuts at the last colon outside brackets. What is left of it is
// checked by ParseName, which refuses any further colon.
func splitAuthority(authority string) (host, port string, hasPort bool) {
	colon := strings.LastIndexByte(authority, ':')
	if colon < 0 || colon < strings.LastIndexByte(authority, ']') {
		return authority, "", false
	}
	return authority[:colon], authority[colon+1:], true
}

// ParsePort reads 1 to 65535 in plain decimal: no sign, no leading zero, no
// blank, no service name, so that there is one spelling only.
func ParsePort(text string) (uint16, error) {
	if text == "" {
		return 0, malformed(text, "is no port: it is empty")
	}
	for i := range len(text) {
		if !isDigit(text[i]) {
			return 0, malformed(text, "is no port: decimal digits only")
		}
	}
	if text[0] == '0' {
		return 0, malformed(text, "is no port: it starts with 0")
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, malformed(text, "is no port: 65535 is the highest")
	}
	return uint16(n), nil
}

// Host is the canonical host.
func (t Target) Host() Host { return t.host }

// Port is 1 to 65535, 0 only in the zero Target.
func (t Target) Port() uint16 { return t.port }

// Scheme is what the client said the connection is for.
func (t Target) Scheme() Scheme { return t.scheme }

// IsZero says that t is no destination: nothing parsed it.
func (t Target) IsZero() bool { return t == Target{} }

// Rule is the text of the rule that allows the target and nothing else: HOST PORT.
func (t Target) Rule() string { return t.host.String() + " " + strconv.Itoa(int(t.port)) }

// String is host:port, with IPv6 in brackets; the canonical form that ParseTarget
// reads back.
func (t Target) String() string {
	if a, ok := t.host.Addr(); ok {
		return netip.AddrPortFrom(a, t.port).String()
	}
	return t.host.name + ":" + strconv.Itoa(int(t.port))
}
