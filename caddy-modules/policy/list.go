package policy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxLine bounds a line of a list, in bytes: four names of the longest kind.
const maxLine = 1024

// ParseList reads a list file: one rule a line, blank lines, and comments from a
// "#" that starts a line or follows a blank, the same as the Caddyfile lexer
// takes them. An error names file:line and nothing of the file counts. A list
// without rules gives none and no error: whether that is a mistake, only the
// caller knows.
func ParseList(r io.Reader, file string) ([]Rule, error) {
	var rules []Rule
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, maxLine), maxLine)
	from := Origin{File: file}
	for scanner.Scan() {
		from.Line++
		line := scanner.Text()
		if from.Line == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		line = uncomment(line)
		if strings.Trim(line, " \t") == "" {
			continue
		}
		rule, err := ParseRule(line, from)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		rules = append(rules, rule)
	}
	if err := scanner.Err(); err != nil {
		from.Line++
		if errors.Is(err, bufio.ErrTooLong) {
			return nil, fmt.Errorf("%s: parse list: line longer than %d bytes", from, maxLine)
		}
		return nil, fmt.Errorf("%s: read list: %w", from, err)
	}
	return rules, nil
}

func uncomment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}
