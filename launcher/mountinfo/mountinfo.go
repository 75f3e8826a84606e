// Package mountinfo reads the fields of /proc/PID/mountinfo (proc(5)).
package mountinfo

import (
	"strconv"
	"strings"
)

// Unescape reads the kernel's way of writing blanks: a backslash and three octal digits.
func Unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
