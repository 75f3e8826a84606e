package policy

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxLine bounds a line of a list, in bytes: four names of the longest kind.
const maxLine = 1024

// List is the text of a list file: one rule a line, blank lines, and comments from a
// "#" that starts a line or follows a blank, the same as the Caddyfile lexer takes
// them. The rules of a list are read when it is compiled, and share its text.
type List struct {
	file string
	text string
	max  int // lines
}

// LoadList reads a file. name is what its rules say of their origin.
func LoadList(path, name string) (*List, error) {
	f, err := os.Open(path) //nolint:gosec // the operator's configuration names the file
	if err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	defer f.Close()
	var text strings.Builder
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		text.Grow(int(info.Size()))
	}
	if _, err := io.Copy(&text, f); err != nil {
		return nil, fmt.Errorf("read list %s: %w", name, err)
	}
	return newList(text.String(), name), nil
}

func newList(text, name string) *List {
	return &List{file: name, text: text, max: strings.Count(text, "\n") + 1}
}

// lines is how many rules the lists have at most.
func lines(lists []*List) (n int) {
	for _, l := range lists {
		n += l.max
	}
	return n
}

// Empty says that there is no rule in the list, and no line that is wrong either.
func (l *List) Empty() bool {
	rest, first := l.text, true
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if content(line, first) != "" {
			return false
		}
		first = false
	}
	return true
}

// each gives the rules one after the other, each in the place of the one before: a
// million of them are no garbage. An error names file:line.
func (l *List) each(take func(*Rule) error) error {
	from := Origin{File: l.file}
	rule := new(Rule)
	rest := l.text
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		from.Line++
		if len(line) >= maxLine {
			return fmt.Errorf("%s: parse list: line longer than %d bytes", from, maxLine)
		}
		if line = content(line, from.Line == 1); line == "" {
			continue
		}
		var ok bool
		if *rule, ok = quickRule(line, from); !ok {
			var err error
			if *rule, err = ParseRule(line, from); err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
		}
		if err := take(rule); err != nil {
			return err
		}
	}
	return nil
}

// content is a line without its comment, its end and the blanks after it; what is left
// of a line without a rule is "".
func content(line string, first bool) string {
	if first {
		line = strings.TrimPrefix(line, "\ufeff")
	}
	line = uncomment(strings.TrimSuffix(line, "\r"))
	return strings.Trim(line, " \t")
}

// addList takes the rules of a list in. Repetitions of a rule count once, and are
// told of.
func (b *builder) addList(l *List, k kind, tell func(*Rule, Origin)) error {
	return l.each(func(r *Rule) error {
		if err := checkKind(r, k); err != nil {
			return err
		}
		if !b.add(r, k) {
			b.forget()
			tell(r, b.entries[b.same].origin())
		}
		return nil
	})
}

// ParseList reads a list into rules. An error names file:line and nothing of the file
// counts. A list without rules gives none and no error: whether that is a mistake, only
// the caller knows.
func ParseList(r io.Reader, file string) ([]Rule, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		at := Origin{File: file, Line: bytes.Count(text, []byte("\n")) + 1}
		return nil, fmt.Errorf("%s: read list: %w", at, err)
	}
	var rules []Rule
	err = newList(string(text), file).each(func(r *Rule) error {
		rules = append(rules, *r)
		return nil
	})
	if err != nil {
		return nil, err
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
