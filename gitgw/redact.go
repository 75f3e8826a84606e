package gitgw

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenShapes are the credentials a forge hands out, as they would stand in
// text: GitHub's and GitLab's prefixes (the long ghs_APPID_JWT form included), bare
// JWTs, and the ways of writing one into a header or URL. Where only a part is the
// credential, the groups around it stay.
var tokenShapes = regexp.MustCompile(
	`gh[oprsu]_[A-Za-z0-9._-]{16,}` +
		`|github_pat_[A-Za-z0-9_]{16,}` +
		`|gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|agent|oas|imt)-[A-Za-z0-9._-]{16,}` +
		`|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*` +
		`|(://)[^/\s:@]*:[^/\s@]*(@)` + // who asks, in a URL
		`|x-access-token:[^@\s]+` +
		`|eC1hY2Nlc3MtdG9rZW46[A-Za-z0-9+/=]+` + // base64 of "x-access-token:"
		`|(?i:((?:authorization|private-token|job-token|deploy-token)["']?\s*[:=]\s*["']?)(?:[a-z]+\s+)?[^\s"',\[]{8,})` +
		`|(?i:\b(?:basic|bearer)\s+[A-Za-z0-9._~+/=-]{16,})`)

const redacted = "[redacted]"

// keepAround is tokenShapes' replacement: what is around a credential, and redacted.
const keepAround = "${1}${3}" + redacted + "${2}"

// redactor removes credentials from text that leaves the gateway: by shape, and
// the tokens of this push by value, since a static token may have any shape.
type redactor struct{ values []string }

// minKnown is the shortest value that is looked for: shorter ones are in ordinary
// words.
const minKnown = 8

// know adds a token's value in the forms in which a forge could echo it.
func (r *redactor) know(t Token) {
	v := t.Value()
	if len(v) < minKnown {
		return
	}
	r.values = append(r.values, basicAuth(v), v, url.QueryEscape(v), url.PathEscape(v), hex.EncodeToString([]byte(v)))
	// With a user's name before it the value may begin at any of three places of a
	// group of base64; its first and last digits then belong to the neighbours too.
	for before := range 3 {
		for _, code := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := code.EncodeToString(append(make([]byte, before), v...))
			whole = whole[(before*8+5)/6:]
			if (before+len(v))%3 != 0 {
				whole = whole[:len(whole)-1]
			}
			if len(whole) >= minKnown {
				r.values = append(r.values, whole)
			}
		}
	}
}

// holds reports whether a text holds one of the values.
func (r *redactor) holds(s string) bool {
	return slices.ContainsFunc(r.values, func(v string) bool { return strings.Contains(s, v) })
}

func (r *redactor) text(s string) string {
	for _, v := range r.values {
		s = strings.ReplaceAll(s, v, redacted)
	}
	return tokenShapes.ReplaceAllString(s, keepAround)
}

// texts is text of each, in a list of its own.
func (r *redactor) texts(all []string) []string {
	clean := slices.Clone(all)
	for i := range clean {
		clean[i] = r.text(clean[i])
	}
	return clean
}

// line is text made fit for one line of a report: no credentials, no control
// characters (a LF would split the line, ESC and CR reach the terminal), valid
// UTF-8, at most 200 bytes, since more only hides the rest.
func (r *redactor) line(s string) string {
	const limit = 200
	s = strings.ToValidUTF8(r.text(s), "?")
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, s)
	s = strings.TrimSpace(s)
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// basicAuth is the credential git sends for a token: user x-access-token.
func basicAuth(token string) string {
	return base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token))
}

// Redact removes credentials from text, by their shapes and those of the tokens that
// are known. Whatever text of others is logged, shown or recorded goes through it,
// or through what it is made of.
func Redact(text string, known ...Token) string { return redactorOf(known).text(text) }

// RedactLine is Redact, and makes the text fit for one line of output.
func RedactLine(text string, known ...Token) string { return redactorOf(known).line(text) }

func redactorOf(known []Token) *redactor {
	r := &redactor{}
	for _, t := range known {
		r.know(t)
	}
	return r
}

// attrs says whose trouble it is, without what this push knows of tokens.
func (p *push) attrs(err error) []any {
	return attrs(p.caller, p.up.repo, errors.New(p.redact.text(err.Error())))
}

// cause is what an error in words for people came of.
func cause(err error) slog.Attr {
	text := ""
	if err = errors.Unwrap(err); err != nil {
		text = Redact(err.Error())
	}
	return slog.String("cause", text)
}

// scrub takes credentials out of what a record says in others' words: the client's
// options and program, its refs' names, an approver's and the forge's reasons.
func (r *redactor) scrub(p *Push) {
	for _, s := range []*string{&p.Reason, &p.ClientAgent, &p.Approver, &p.Question} {
		*s = r.text(*s)
	}
	p.Options = r.texts(p.Options)
	p.Refs = slices.Clone(p.Refs)
	for i := range p.Refs {
		ref := &p.Refs[i]
		ref.Ref, ref.Reason, ref.Message = r.text(ref.Ref), r.text(ref.Reason), r.text(ref.Message)
	}
}
