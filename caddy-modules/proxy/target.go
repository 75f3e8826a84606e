package proxy

import (
	"net/http"
	"strings"

	"postern/caddy-modules/policy"
)

// tlsPort is the port on which a tunnel must carry TLS.
const tlsPort = 443

// tunnelTarget reads the authority-form of a CONNECT.
func tunnelTarget(authority string) (policy.Target, error) {
	t, err := policy.ParseTarget(authority, policy.SchemeTCP)
	if err != nil {
		return policy.Target{}, err
	}
	return tunnelTo(t.Host(), t.Port())
}

// tunnelTo gives a tunnel its scheme by its port.
func tunnelTo(host policy.Host, port uint16) (policy.Target, error) {
	scheme := policy.SchemeTCP
	if port == tlsPort {
		scheme = policy.SchemeTLS
	}
	return policy.NewTarget(host, port, scheme)
}

// plainTarget splits the absolute-form of a plain request into what is judged
// and what is sent: the path with its query, byte for byte. It looks at the text
// once and never decodes it, so that no URL library downstream can see another
// host in it.
func plainTarget(method, uri string) (t policy.Target, path string, err error) {
	const scheme = "http://"
	if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return policy.Target{}, "", bad("%s", notAbsolute(uri))
	}
	rest := uri[len(scheme):]
	// RFC 9112 section 3.2: no fragment. Some parsers end the authority at '#',
	// some do not.
	if strings.IndexByte(rest, '#') >= 0 {
		return policy.Target{}, "", bad("a fragment in the target")
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	t, err = policy.ParseTargetOr(authority, 80, policy.SchemeHTTP)
	if err != nil {
		return policy.Target{}, "", err
	}
	switch {
	case path == "" && method == http.MethodOptions:
		path = "*" // RFC 9112 section 3.2.4
	case path == "" || path[0] == '?':
		path = "/" + path
	}
	return t, path, nil
}

// notAbsolute says what is wrong with a target that is no http:// URI, with the
// cure where there is one.
func notAbsolute(uri string) string {
	scheme, _, ok := strings.Cut(uri, ":")
	switch {
	case strings.HasPrefix(uri, "/") || uri == "*":
		return "this is a forward proxy: the target must be an http:// URI or a CONNECT"
	case ok && strings.EqualFold(scheme, "https"):
		return "https is not opened by the proxy: the client sends CONNECT host:443 and speaks TLS itself"
	default:
		return "the target is no http:// URI"
	}
}

// hostField is the Host an upstream gets: the judged host, with the port unless
// it is the scheme's own.
func hostField(t policy.Target) string {
	if t.Port() != 80 {
		return t.String()
	}
	if a, ok := t.Host().Addr(); ok && a.Is6() {
		return "[" + a.String() + "]"
	}
	return t.Host().String()
}
