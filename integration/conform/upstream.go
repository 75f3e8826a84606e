package main

import (
	"slices"
	"strings"
)

// checkRequests looks at what origins got of an `http` case. It knows nothing
// of the single case: these hold for every request a forward proxy passes on.
func (c *testCase) checkRequests(got []originRequest, o *outcome) {
	sent := clientRequests(c.Input)
	next := 0
	for i, v := range o.verdicts {
		if v != allow || i >= len(sent) {
			continue
		}
		if next >= len(got) {
			o.fault("request %d did not reach an origin", i+1)
			return
		}
		checkRequest(sent[i], got[next], o)
		next++
	}
	if next < len(got) {
		line, _, _ := strings.Cut(got[next].head, "\n")
		o.fault("the origin got a request more: %s", strings.TrimSpace(line))
	}
}

// clientRequest is the head of a request as the client sent it.
type clientRequest struct {
	method string
	target string
	fields map[string][]string // by lower-case name
}

// clientRequests finds the heads in an input: lines that begin a proxy request,
// and what follows up to an empty line.
func clientRequests(input string) []clientRequest {
	var out []clientRequest
	for rest := input; rest != ""; {
		end := headEnd(rest)
		if end == 0 {
			end = len(rest)
		}
		head := rest[:end]
		rest = rest[end:]
		// A body may stand between two heads.
		for {
			line, after, more := strings.Cut(head, "\n")
			if _, ok := requestTarget(line); ok {
				words := strings.Fields(line)
				out = append(out, clientRequest{words[0], words[1], parseFields(after)})
				break
			}
			if !more {
				break
			}
			head = after
		}
	}
	return out
}

// parseFields reads header lines without judging them.
func parseFields(text string) map[string][]string {
	fields := map[string][]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if ok {
			key := strings.ToLower(strings.TrimSpace(name))
			fields[key] = append(fields[key], strings.TrimSpace(value))
		}
	}
	return fields
}

// mustStay are fields that end at the proxy: hop-by-hop ones of RFC 9110
// section 7.6.1, and what clients use to steer a proxy.
var mustStay = []string{"proxy-authorization", "proxy-connection", "proxy-authenticate", "keep-alive", "te", "http2-settings", "x-upstream-https-proxy", "x-unix-socket"}

func checkRequest(sent clientRequest, got originRequest, o *outcome) {
	for line := range strings.Lines(got.head) {
		if !strings.HasSuffix(line, "\r\n") {
			o.fault("a line went upstream without its CRLF: %q", line)
		}
		if line[0] == ' ' || line[0] == '\t' {
			o.fault("a folded line went upstream: %q", line)
		}
	}
	first, rest, _ := strings.Cut(got.head, "\n")
	words := strings.Fields(first)
	authority, path := splitTarget(sent.target)
	if sent.method == "OPTIONS" && strings.HasSuffix(sent.target, authority) {
		path = "*" // RFC 9112 section 3.2.4
	}
	if len(words) != 3 || words[1] != path {
		o.fault("the origin was asked for %q instead of %q", strings.TrimSpace(first), path)
	}
	fields := parseFields(rest)
	if h := fields["host"]; len(h) != 1 || canonicalAuthority(h[0]) != canonicalAuthority(authority) {
		o.fault("the origin got Host %q instead of %q", h, authority)
	}
	if n := len(fields["content-length"]) + len(fields["transfer-encoding"]); n > 1 {
		o.fault("the origin got %d framing fields", n)
	}
	stay := mustStay
	for _, v := range sent.fields["connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			if name != "upgrade" && name != "close" && name != "keep-alive" && name != "" {
				stay = append(slices.Clip(stay), name)
			}
		}
	}
	for _, name := range stay {
		if fields[name] != nil {
			o.fault("the field %s went upstream", name)
		}
	}
	for _, u := range fields["upgrade"] {
		if !strings.EqualFold(u, "websocket") {
			o.fault("an upgrade to %s went upstream", u)
		}
	}
}

// splitTarget cuts an absolute-form target into authority and origin-form.
func splitTarget(t string) (authority, path string) {
	_, rest, ok := strings.Cut(t, "://")
	if !ok {
		return "", t
	}
	i := indexAny(rest, "/?#")
	authority, path = rest[:i], rest[i:]
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return authority, path
}

// canonicalAuthority is lower case, without the default port and root dot.
func canonicalAuthority(s string) string {
	s = strings.TrimSuffix(strings.ToLower(s), ":80")
	return strings.TrimSuffix(s, ".")
}
