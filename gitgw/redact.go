package gitgw

import (
	"encoding/base64"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenShapes are the credentials a forge hands out, as they would stand in
// text: GitHub's prefixes (the long ghs_APPID_JWT form included), bare JWTs, and
// the ways of writing one into a header or URL.
var tokenShapes = regexp.MustCompile(
	`gh[oprsu]_[A-Za-z0-9._-]{16,}` +
		`|github_pat_[A-Za-z0-9_]{16,}` +
		`|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*` +
		`|x-access-token:[^@\s]+` +
		`|eC1hY2Nlc3MtdG9rZW46[A-Za-z0-9+/=]+` + // base64 of "x-access-token:"
		`|(?i:\b(?:basic|bearer)\s+[A-Za-z0-9._~+/=-]{16,})`)

const redacted = "[redacted]"

// redactor removes credentials from text that leaves the gateway: by shape, and
// the tokens of this push by value, since a static token may have any shape.
type redactor struct{ values []string }

// know adds a token's value in the forms in which a forge could echo it.
func (r *redactor) know(t Token) {
	if v := t.Value(); len(v) >= 8 {
		r.values = append(r.values, basicAuth(v), v)
	}
}

func (r *redactor) text(s string) string {
	for _, v := range r.values {
		s = strings.ReplaceAll(s, v, redacted)
	}
	return tokenShapes.ReplaceAllString(s, redacted)
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

// Redact removes credentials from text by their shapes.
func Redact(text string) string { return (&redactor{}).text(text) }

// RedactLine is Redact, and makes the text fit for one line of output.
func RedactLine(text string) string { return (&redactor{}).line(text) }
