package proxy

import (
	"net/http"
	"strings"

	"postern/caddy-modules/policy"
)

// The ports on which it is known what a tunnel must carry.
const (
	httpPort = 80
	tlsPort  = 443
)

// tunnelTarget reads the authority-form of a CONNECT.
func tunnelTarget(authority string) (policy.Target, error) {
	t, err := policy.ParseTarget(authority, policy.SchemeTCP)
	if err != nil {
		return policy.Target{}, err
	}
	return policy.TunnelTarget(t.Host(), t.Port())
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
	t, err = policy.ParseTargetOr(authority, httpPort, policy.SchemeHTTP)
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

// insideTarget reads the target of a request in a tunnel: what is sent, and
// whether the request is for the host of the tunnel. Clients write origin-form
// there; absolute-form is what a server must take as well (RFC 9112 section
// 3.2.2). The Host field must agree in both, though it is written anew: it is what
// the client meant, and a refusal tells it so where the wrong page would not.
func insideTarget(r *request, judged policy.Target) (path string, same bool, err error) {
	if r.method == http.MethodConnect {
		return "", false, bad("CONNECT inside a tunnel")
	}
	// HTTP/1.0 may come without a Host; the upstream gets the judged one.
	same = r.host == "" && r.minor == 0 || sameAuthority(r.host, judged)
	switch uri := r.target; {
	case uri == "*" && r.method == http.MethodOptions:
		return uri, same, nil
	case strings.HasPrefix(uri, "/"):
		if strings.IndexByte(uri, '#') >= 0 {
			return "", false, bad("a fragment in the target")
		}
		return uri, same, nil
	default:
		t, path, err := plainTarget(r.method, uri)
		if err != nil {
			return "", false, err
		}
		return path, same && t.Host() == judged.Host() && t.Port() == judged.Port(), nil
	}
}

func sameAuthority(field string, judged policy.Target) bool {
	t, err := policy.ParseTargetOr(field, httpPort, judged.Scheme())
	return err == nil && t == judged
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
	if t.Port() != httpPort {
		return t.String()
	}
	if a, ok := t.Host().Addr(); ok && a.Is6() {
		return "[" + a.String() + "]"
	}
	return t.Host().String()
}
