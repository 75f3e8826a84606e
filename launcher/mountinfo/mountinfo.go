// Package mountinfo reads the lines of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
package mountinfo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mount is one line: what of which file system is where.
type Mount struct {
	ID       uint64
	Device   string // major:minor
	Root     string // inside the file system
	At       string
	Type     string // of file system
	Writable bool   // this mount of it
}

// ParseLine reads one.
func ParseLine(line string) (Mount, error) {
	head, tail, ok := strings.Cut(line, " - ")
	fields, about := strings.Fields(head), strings.Fields(tail)
	if !ok || len(fields) < 6 || len(about) < 1 {
		return Mount{}, fmt.Errorf("%q is no mount", line)
	}
	id, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return Mount{}, fmt.Errorf("%q is no mount: %w", line, err)
	}
	return Mount{
		ID: id, Device: fields[2], Root: Unescape(fields[3]), At: Unescape(fields[4]), Type: about[0],
		Writable: slices.Contains(strings.Split(fields[5], ","), "rw"),
	}, nil
}

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
