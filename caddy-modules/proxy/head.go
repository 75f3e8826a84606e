package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// headError is a request head that is refused without asking anybody.
type headError struct {
	status int // 400, 414, 417, 431
	reason string
}

func (e *headError) Error() string { return "read request: " + e.reason }

// statusOf is the status for a request that could not be read.
func statusOf(err error) int {
	if e, ok := errors.AsType[*headError](err); ok {
		return e.status
	}
	return http.StatusBadRequest
}

func bad(format string, args ...any) error {
	return &headError{status: http.StatusBadRequest, reason: fmt.Sprintf(format, args...)}
}

// field is one header field as it came; the name is not canonicalised.
type field struct{ name, value string }

// chunked and noBody are the bodyLen of a request whose content is chunked, or
// that has none and said nothing about it.
const (
	chunked = -1
	noBody  = -2
)

// request is one parsed head. Its strings share one copy of the head's bytes, so
// they stay valid when the buffer moves on.
type request struct {
	method string
	target string
	minor  int // HTTP/1.minor
	fields []field

	host      string
	bodyLen   int64 // content in bytes, or chunked, or noBody
	close     bool  // the client wants the connection closed afterwards
	expect    bool  // Expect: 100-continue
	both      bool  // Content-Length and Transfer-Encoding were both there
	upgrade   bool  // a WebSocket handshake
	trailer   bool  // a Trailer field announced trailers
	connNamed []string
}

// hasBody says that content follows the head.
func (r *request) hasBody() bool { return r.bodyLen == chunked || r.bodyLen > 0 }

// scanHead looks for the end of a request head in what was received so far. It
// gives the length of the head with its empty line, or 0 when more is needed.
// Size is judged while bytes arrive, so that nobody can make the reader hold
// more than the limits allow.
func scanHead(b []byte, l *Limits) (int, error) {
	if len(b) > 0 && !isToken(b[0]) {
		// TLS or anything else that is no HTTP: waiting for a line would only
		// keep the client waiting.
		return 0, bad("does not start with a method")
	}
	line := bytes.IndexByte(b, '\n')
	if line < 0 && len(b) >= l.RequestLine || line >= l.RequestLine {
		return 0, &headError{http.StatusRequestURITooLong, fmt.Sprintf("request line longer than %d bytes", l.RequestLine)}
	}
	if line < 0 {
		return 0, nil
	}
	limit := line + 1 + l.HeaderBlock
	for start := line + 1; ; {
		n := bytes.IndexByte(b[start:], '\n')
		if n < 0 {
			break
		}
		if start+n+1 > limit {
			break
		}
		if n == 0 || n == 1 && b[start] == '\r' {
			return start + n + 1, nil
		}
		start += n + 1
	}
	if len(b) >= limit {
		return 0, &headError{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("header block larger than %d bytes", l.HeaderBlock)}
	}
	return 0, nil
}

// settle draws from the fields what the proxy must know: host, framing, what
// becomes of the connection.
func (r *request) settle() error {
	var hosts, codings int
	var coding string
	length := int64(noBody)
	r.close = r.minor == 0
	for _, f := range r.fields {
		switch len(f.name) {
		case len("Host"):
			if strings.EqualFold(f.name, "Host") {
				hosts++
				r.host = f.value
			}
		case len("Content-Length"):
			if strings.EqualFold(f.name, "Content-Length") {
				n, err := parseLength(f.value)
				if err != nil {
					return err
				}
				if length != noBody && length != n {
					return bad("two different Content-Length fields")
				}
				length = n
			}
		case len("Transfer-Encoding"):
			if strings.EqualFold(f.name, "Transfer-Encoding") {
				codings++
				coding = f.value
			}
		case len("Connection"):
			if strings.EqualFold(f.name, "Connection") {
				r.readConnection(f.value, true)
			}
		case len("Proxy-Connection"):
			// What HTTP/1.0 clients made up; the name list in it means nothing.
			if strings.EqualFold(f.name, "Proxy-Connection") {
				r.readConnection(f.value, false)
			}
		case len("Expect"):
			if strings.EqualFold(f.name, "Expect") {
				if !strings.EqualFold(f.value, "100-continue") {
					return &headError{http.StatusExpectationFailed, "expectation other than 100-continue"}
				}
				// RFC 9110 section 10.1.1: ignored in a 1.0 request.
				r.expect = r.minor == 1
			}
		case len("Trailer"):
			if strings.EqualFold(f.name, "Trailer") {
				r.trailer = true
			}
		}
	}
	if hosts > 1 {
		return bad("more than one Host field")
	}
	if hosts == 0 && r.minor == 1 {
		return bad("no Host field")
	}
	if !isHostField(r.host) {
		return bad("malformed Host field")
	}
	switch {
	case codings > 1:
		return bad("more than one Transfer-Encoding field")
	case codings == 1 && r.minor == 0:
		// RFC 9112 section 6.1: the framing of such a message is faulty.
		return bad("Transfer-Encoding in an HTTP/1.0 request")
	case codings == 1 && !strings.EqualFold(coding, "chunked"):
		return bad("Transfer-Encoding other than chunked")
	case codings == 1:
		r.bodyLen, r.both = chunked, length != noBody
	default:
		r.bodyLen = length
	}
	if !r.hasBody() {
		r.expect = false
	}
	r.upgrade = r.asksWebSocket()
	return nil
}

func (r *request) readConnection(value string, names bool) {
	for option := range strings.SplitSeq(value, ",") {
		option = strings.Trim(option, " \t")
		switch {
		case option == "":
		case strings.EqualFold(option, "close"):
			r.close = true
		case names:
			r.connNamed = append(r.connNamed, option)
		}
	}
}

// named says that a Connection field lists name.
func (r *request) named(name string) bool {
	for _, n := range r.connNamed {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// asksWebSocket says that the request is the handshake of RFC 6455 section 4.1.
func (r *request) asksWebSocket() bool {
	if r.method != http.MethodGet || r.minor != 1 || r.hasBody() || !r.named("Upgrade") {
		return false
	}
	found := false
	for _, f := range r.fields {
		if strings.EqualFold(f.name, "Upgrade") {
			// A list would let the upstream choose something else.
			if found || !strings.EqualFold(f.value, "websocket") {
				return false
			}
			found = true
		}
	}
	return found
}
