package proxy

import (
	"fmt"
	"net/http"
	"strings"
)

// parseHead reads a head that scanHead found complete. r is reused from request
// to request.
func (r *request) parseHead(head []byte) error {
	*r = request{fields: r.fields[:0], connNamed: r.connNamed[:0], bodyLen: noBody}
	text := string(head)
	line, text, err := cutLine(text)
	if err != nil {
		return err
	}
	if err := r.parseRequestLine(line); err != nil {
		return err
	}
	for {
		line, text, err = cutLine(text)
		if err != nil {
			return err
		}
		if line == "" {
			break
		}
		if err := r.parseField(line); err != nil {
			return err
		}
	}
	return r.settle()
}

// cutLine takes a line off text. A line ends in LF, with or without CR before it
// (RFC 9112 section 2.2); CR anywhere else is what splits a request in two for
// some parsers and is refused.
func cutLine(text string) (line, rest string, err error) {
	line, rest, ok := strings.Cut(text, "\n")
	if !ok {
		return "", "", bad("a line without its end")
	}
	line = strings.TrimSuffix(line, "\r")
	if strings.IndexByte(line, '\r') >= 0 {
		return "", "", bad("a CR that does not end a line")
	}
	return line, rest, nil
}

func (r *request) parseRequestLine(line string) error {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || !isTokenText(method) {
		return bad("malformed method")
	}
	target, version, ok := strings.Cut(rest, " ")
	if !ok {
		return bad("no HTTP version after the target")
	}
	switch version {
	case "HTTP/1.1":
		r.minor = 1
	case "HTTP/1.0":
		r.minor = 0
	default:
		return bad("HTTP version is neither 1.1 nor 1.0")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			return bad("control byte in the target")
		}
	}
	// Method names are case-sensitive; a "connect" that some other parser
	// takes for CONNECT must not get through as an unknown method.
	if method != http.MethodConnect && strings.EqualFold(method, http.MethodConnect) {
		return bad("method CONNECT must be written in capitals")
	}
	r.method, r.target = method, target
	return nil
}

func (r *request) parseField(line string) error {
	if line[0] == ' ' || line[0] == '\t' {
		return r.unfold(line)
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isTokenText(name) {
		// A blank before the colon ends up here as well (RFC 9112 section 5.1).
		return bad("malformed header field name")
	}
	value = strings.Trim(value, " \t")
	if !isFieldValue(value) {
		return bad("control byte in the field %s", name)
	}
	if len(r.fields) >= maxFields {
		return &headError{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("more than %d header fields", maxFields)}
	}
	r.fields = append(r.fields, field{name, value})
	return nil
}

// unfold appends an obs-fold line to the field before it (RFC 9112 section 5.2).
// Nothing that decides where a request goes or where it ends may be folded.
func (r *request) unfold(line string) error {
	if len(r.fields) == 0 {
		return bad("folded line before the first header field")
	}
	last := &r.fields[len(r.fields)-1]
	if decides(last.name) {
		return bad("folded field %s", last.name)
	}
	line = strings.Trim(line, " \t")
	if !isFieldValue(line) {
		return bad("control byte in the field %s", last.name)
	}
	last.value += " " + line
	return nil
}
