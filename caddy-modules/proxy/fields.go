package proxy

import (
	"math"
	"strconv"
	"strings"
)

// decides names the fields that say where a request ends or what becomes of it.
func decides(name string) bool {
	for _, n := range [...]string{
		"Host", "Content-Length", "Transfer-Encoding", "Connection", "Proxy-Connection", "Upgrade", "Expect", "Trailer", "TE",
	} {
		if strings.EqualFold(name, n) {
			return true
		}
	}
	return false
}

// isHopByHop names the fields that end at this proxy: those of RFC 9110 section
// 7.6.1, everything Proxy-*, what carries h2c, and those with which a client
// could steer a further proxy.
func isHopByHop(name string) bool {
	const proxy = "Proxy-"
	if len(name) >= len(proxy) && strings.EqualFold(name[:len(proxy)], proxy) {
		return true
	}
	switch len(name) {
	case 2, 7, 10, 13, 14, 17, 22:
	default:
		return false // none of those below has such a length
	}
	for _, n := range hopByHop {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// passesAsTrailer says that a field may come after the content. What frames,
// routes or authenticates a message has no meaning so late, except to a parser
// that is confused (RFC 9110 section 6.5.1).
func passesAsTrailer(name string) bool {
	if !isTokenText(name) || decides(name) || isHopByHop(name) {
		return false
	}
	for _, n := range [...]string{"Authorization", "Cookie", "Set-Cookie", decisionField, reasonField} {
		if strings.EqualFold(name, n) {
			return false
		}
	}
	return true
}

var hopByHop = [...]string{
	"Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "HTTP2-Settings",
	"X-Upstream-Https-Proxy", "X-Unix-Socket",
}

// parseLength takes digits only: no sign, no list, no blank (RFC 9110 section
// 8.6 allows a list of equal values to be refused).
func parseLength(value string) (int64, error) {
	if value == "" || len(value) > 19 {
		return 0, bad("malformed Content-Length")
	}
	for i := range len(value) {
		if value[i] < '0' || value[i] > '9' {
			return 0, bad("malformed Content-Length")
		}
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n > math.MaxInt64 {
		return 0, bad("malformed Content-Length")
	}
	return int64(n), nil
}

// isHostField takes what could be uri-host [":" port] (RFC 9110 section 7.2).
// The field decides nothing here: a target in absolute-form overrides it (RFC
// 9112 section 3.2.2). But one that holds two hosts, user information or a path
// is an attempt at something.
func isHostField(value string) bool {
	for i := range len(value) {
		switch c := value[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case strings.IndexByte("-._:[]", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// isFieldValue takes blanks, visible ASCII and bytes above it (RFC 9110 section
// 5.5).
func isFieldValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func isTokenText(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if !isToken(s[i]) {
			return false
		}
	}
	return true
}

// isToken is tchar of RFC 9110 section 5.6.2.
func isToken(c byte) bool { return tokens[c] }

var tokens = func() (t [256]bool) {
	for c := byte('0'); c <= '9'; c++ {
		t[c] = true
	}
	for c := byte('a'); c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		t[c] = true
	}
	return t
}()
