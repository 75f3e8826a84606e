package policy

import (
	"strconv"
	"unicode/utf8"
)

// SyntaxError says that a host, port or target is malformed. It is not a policy
// refusal: nothing was judged, looked up or dialled (HTTP 400, SOCKS close,
// DNS FORMERR).
type SyntaxError struct {
	// Input is the text as it was received. It may hold any byte: never write
	// it to a header, a log line or a terminal unquoted.
	Input string
	// Reason completes "Input …": "holds a NUL byte".
	Reason string
}

// shownInput bounds how much hostile text is echoed, in bytes.
const shownInput = 80

// Error quotes the input in printable ASCII, so that the line can go into a
// status phrase, a log and a terminal as it is.
func (e *SyntaxError) Error() string {
	return quote(e.Input) + " " + e.Reason
}

func malformed(input, reason string) error {
	return &SyntaxError{Input: input, Reason: reason}
}

// quote makes one line of printable ASCII of any text, at most shownInput bytes
// of it.
func quote(text string) string {
	if len(text) <= shownInput {
		return strconv.QuoteToASCII(text)
	}
	cut := shownInput
	for cut > shownInput-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(text[:cut]) + "..."
}

// printable replaces what is not printable ASCII, so that a file name or a
// caller's text cannot break a header or a log line.
func printable(text string) string {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			clean := []byte(text)
			for j, c := range clean {
				if c < ' ' || c > '~' {
					clean[j] = '?'
				}
			}
			return string(clean)
		}
	}
	return text
}
