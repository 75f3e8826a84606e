package violation

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

const (
	maxRaw    = 400 // bytes of a line that are kept
	maxTarget = 256
	maxAction = 48

	// unnamed is the action where the text does not say what was tried.
	unnamed = "access"
)

// phrases are what tells of a denied system call, in lower case (SPEC 95).
var phrases = []string{"permission denied", "operation not permitted"}

// notCalls follow "Permission denied" where a server refused a login: no system call
// was denied.
var notCalls = []string{" (publickey", " (password", " (keyboard-interactive", " (gssapi", " (hostbased", ", please try again"}

// parse reads one line, or a part of one, and names what it can.
func parse(line []byte) (Violation, bool) {
	text := clean(line)
	at, end := find(text)
	if at < 0 || isEcho(text) {
		return Violation{}, false
	}
	before, after := text[:at], text[end:]
	for _, n := range notCalls {
		if strings.HasPrefix(after, n) {
			return Violation{}, false
		}
	}
	v := Violation{Action: unnamed, Raw: clip(around(text, at, end), maxRaw)}
	action, target := name(before, after)
	if action != "" {
		v.Action = clip(action, maxAction)
	}
	v.Target = clip(target, maxTarget)
	return v, true
}

// around is the part of a line around what was found.
func around(text string, at, end int) string {
	if len(text) <= maxRaw {
		return text
	}
	from := max(0, min(at, end-maxRaw*3/4))
	return text[from:min(len(text), from+maxRaw)]
}

// clean takes away colours and other orders to a terminal, and all of a line but the
// part that a carriage return did not write over.
func clean(line []byte) string {
	if bytes.IndexByte(line, 0) >= 0 {
		return "" // not text
	}
	line = bytes.TrimRight(line, " \t\r\n")
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == 0x1b:
			i += escape(line[i:]) - 1
		case c == '\r':
			out = append(out, '\n') // parts of a line that are told apart
		case c < ' ' && c != '\t' || c == 0x7f:
		default:
			out = append(out, c)
		}
	}
	text := strings.ToValidUTF8(string(out), "?")
	for part := range strings.SplitSeq(text, "\n") {
		if at, _ := find(part); at >= 0 {
			return strings.TrimSpace(part)
		}
	}
	return ""
}

// escape is the length of the escape sequence that b begins with (ECMA-48).
func escape(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
		}
		return len(b)
	case ']', 'P', '^', '_':
		for i := 2; i < len(b); i++ {
			if b[i] == 7 {
				return i + 1
			}
			if b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\' {
				return i + 2
			}
		}
		return len(b)
	}
	return 2
}

// find gives where one of the texts is in a clean line; -1 where none is.
func find(text string) (at, end int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case 'P', 'p', 'O', 'o':
			for _, p := range phrases {
				if text[i]|0x20 == p[0] && strings.HasPrefix(text[i+1:], p[1:]) {
					return i, i + len(p)
				}
			}
		case 'E':
			if strings.HasPrefix(text[i:], "EPERM") && !wordAt(text, i-1) && !wordAt(text, i+5) {
				// The text that mostly follows says the same and more.
				rest := text[i+5:]
				for _, lead := range []string{": ", " (", ", "} {
					for _, p := range phrases {
						if r, ok := strings.CutPrefix(rest, lead); ok && len(r) >= len(p) && strings.EqualFold(r[:len(p)], p) {
							return i, i + 5 + len(lead) + len(p)
						}
					}
				}
				return i, i + 5
			}
		}
	}
	return -1, -1
}

func wordAt(text string, i int) bool {
	if i < 0 || i >= len(text) {
		return false
	}
	c := text[i]
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// isEcho reports whether a line is one property of a printed error object, whose
// message has been a line of its own.
func isEcho(text string) bool {
	text = strings.TrimSuffix(text, ",")
	return strings.HasPrefix(text, "code: ") && len(text) <= len("code: 'EPERM'")
}

// clip bounds a text, at a character.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
