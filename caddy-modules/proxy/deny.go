package proxy

import (
	"net/http"
	"strconv"
	"strings"

	"postern/caddy-modules/policy"
)

// Header fields of every answer that the proxy makes itself. They are taken off
// what an upstream answers, so that only the proxy can say them.
const (
	decisionField = "Postern-Decision" // "denied", "allowed" (and failed), "malformed", "none" (turned away unread)
	reasonField   = "Postern-Reason"   // a stable word
)

// maxPhrase bounds the status phrase, in bytes. Clients show it (curl, git, pip
// print it when a CONNECT fails), some cut it.
const maxPhrase = 240

// reply is an answer of the proxy itself.
type reply struct {
	status   int
	phrase   string
	decision string
	reason   string
	body     string
	close    bool
	head     bool // answer to HEAD: no content
	// challenge says that credentials are wanted (RFC 9110 section 11.7.1).
	challenge bool
}

// deniedReply says what was refused, by which rule, and what would change it.
// 403 and never 407, with credentials as without: clients answer 407 by asking
// the user for a password. The
// last line is for agents, which otherwise try curl, wget, a mirror, an IP
// address and a public proxy in turn.
func deniedReply(v verdict) reply {
	var b strings.Builder
	b.WriteString("Postern refused this request.\n\n")
	b.WriteString("host: " + v.target.Host().String() + "\n")
	b.WriteString("port: " + strconv.Itoa(int(v.target.Port())) + "\n")
	b.WriteString("reason: " + v.code() + "\n")
	b.WriteString("rule: " + ruleText(v.decision) + "\n\n")
	b.WriteString(v.reason() + ".\n\n")
	status := http.StatusForbidden
	if isCap(v.decision.Code) {
		status = http.StatusTooManyRequests
		b.WriteString("The lists are not in the way; this is a cap of the session.\n")
	} else {
		b.WriteString("No other tool, address, port or proxy gives another answer; this is policy: do not retry another way.\n")
	}
	return reply{
		status:   status,
		phrase:   v.reason(),
		decision: "denied",
		reason:   v.code(),
		body:     printable(b.String()),
	}
}

func ruleText(d policy.Decision) string {
	if d.Rule == "" {
		return "none"
	}
	return d.Rule + " (" + d.Source + ")"
}

// failedReply is for a target that is allowed and could not be reached.
func failedReply(e *DialError) reply {
	status := http.StatusBadGateway
	if e.Late {
		status = http.StatusGatewayTimeout
	}
	sentence := printable(e.sentence())
	return reply{
		status:   status,
		phrase:   sentence,
		decision: "allowed",
		reason:   e.code(),
		body:     sentence + ".\nThe policy is not in the way; the upstream or the network is.\n",
	}
}

// malformedReply is for a request that could not be read. The connection closes:
// where the next request starts is not known any more.
func malformedReply(err error) reply {
	text := printable(err.Error())
	return reply{
		status:   statusOf(err),
		phrase:   http.StatusText(statusOf(err)),
		decision: "malformed",
		reason:   "malformed",
		body:     "Postern could not read this request: " + strings.TrimPrefix(text, "read request: ") + ".\nNothing was looked up or connected to.\n",
		close:    true,
	}
}

// tooManyReply turns a client away before anything of it was read.
func tooManyReply() reply {
	const sentence = "too many connections are open"
	return reply{
		status:   http.StatusServiceUnavailable,
		phrase:   sentence,
		decision: "none",
		reason:   "too_many_connections",
		body:     "Postern cannot take this connection: " + sentence + " in this session or on this host.\nClose some and try again; the policy is not in the way.\n",
		close:    true,
	}
}

// timeoutReply is for a request whose content stopped coming.
func timeoutReply() reply {
	return reply{
		status:   http.StatusRequestTimeout,
		phrase:   http.StatusText(http.StatusRequestTimeout),
		decision: "allowed",
		reason:   "request_timeout",
		body:     "The content of this request stopped coming.\n",
		close:    true,
	}
}

// append writes the whole answer.
func (r *reply) append(b []byte) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(r.status), 10)
	b = append(b, ' ')
	phrase := printable(r.phrase)
	b = append(b, phrase[:min(len(phrase), maxPhrase)]...)
	b = append(b, "\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"...)
	b = appendField(b, decisionField, r.decision)
	b = appendField(b, reasonField, r.reason)
	if r.challenge {
		b = appendField(b, "Proxy-Authenticate", `Basic realm="postern"`)
	}
	if r.close {
		b = appendField(b, "Connection", "close")
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(r.body)), 10)
	b = append(b, "\r\n\r\n"...)
	if !r.head {
		b = append(b, r.body...)
	}
	return b
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// printable keeps printable ASCII and line ends of our own making, so that no
// text of a client or an upstream can break a header, a terminal or a log.
func printable(text string) string {
	clean := func(c byte) bool { return c >= ' ' && c <= '~' || c == '\n' }
	for i := range len(text) {
		if !clean(text[i]) {
			b := []byte(text)
			for j := range b {
				if !clean(b[j]) {
					b[j] = '?'
				}
			}
			return string(b)
		}
	}
	return text
}
