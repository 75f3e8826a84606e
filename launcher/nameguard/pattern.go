package nameguard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Bounds of a pattern.
const (
	maxText  = 4096 // PATH_MAX of Linux
	maxName  = 255  // NAME_MAX
	maxParts = 64
)

// AnyDepth is the part of a Pattern that stands for any number of folders.
const AnyDepth = "**"

// Pattern is a rule's text, read. In each part * is any run of characters and ? is one.
type Pattern struct {
	Rooted bool     // it begins at /; any other may begin in every directory
	Parts  []string // at least one; AnyDepth is neither the first nor the last, nor twice in a row

	names int // how many of the parts, from the first on, are names in which nothing is a wildcard
}

// Parse reads a pattern. The error names the pattern and what to write instead.
func Parse(text string) (Pattern, error) {
	p, err := parse(text)
	if err != nil {
		return Pattern{}, fmt.Errorf("parse pattern %q: %w", clip(text), err)
	}
	return p, nil
}

func parse(text string) (Pattern, error) {
	p := Pattern{Rooted: strings.HasPrefix(text, "/")}
	switch {
	case text == "":
		return p, errors.New("it is empty; name a file, as .env or *.key")
	case len(text) > maxText:
		return p, fmt.Errorf("it has %d bytes, at most %d", len(text), maxText)
	case strings.ContainsFunc(text, unicode.IsControl):
		return p, errors.New("it has a control character; write ? for it")
	case strings.HasPrefix(text, "~"):
		return p, errors.New("~ is not a home here; write the whole path")
	case strings.HasPrefix(text, "!"):
		return p, errors.New("a pattern cannot take another back; declare a free directory")
	case strings.HasPrefix(text, "./"), strings.HasPrefix(text, "../"):
		return p, errors.New("it is relative to a folder; begin it with / for one place, or with a name for every depth")
	}
	for part := range strings.SplitSeq(text, "/") {
		switch {
		case part == "", part == AnyDepth && len(p.Parts) > 0 && p.Parts[len(p.Parts)-1] == AnyDepth:
			continue
		case part == AnyDepth && len(p.Parts) == 0:
			p.Rooted = false
			continue
		}
		if err := checkPart(part); err != nil {
			return p, err
		}
		p.Parts = append(p.Parts, part)
	}
	if len(p.Parts) > maxParts {
		return p, fmt.Errorf("it has %d parts, at most %d", len(p.Parts), maxParts)
	}
	// What is at the end of two stars is everything in a folder: who may write nothing
	// that lies directly in it may write nothing of it.
	if last := len(p.Parts) - 1; last >= 0 && p.Parts[last] == AnyDepth {
		p.Parts[last] = "*"
	}
	if !slices.ContainsFunc(p.Parts, func(part string) bool { return strings.Trim(part, "*") != "" }) {
		return p, errors.New("it names everything; show the folder read-only instead: --bind DIR:ro")
	}
	return p, nil
}

func checkPart(part string) error {
	switch {
	case part == AnyDepth:
		return nil
	case part == "." || part == "..":
		return fmt.Errorf("it has a part %q; name the folder itself", part)
	case strings.Contains(part, AnyDepth):
		return fmt.Errorf("two stars stand alone between slashes; write %s", strings.TrimPrefix(strings.ReplaceAll(part, AnyDepth, "**/*"), "/"))
	case strings.ContainsAny(part, `[]{}\`):
		return errors.New("brackets, braces and backslashes mean nothing in a pattern; write one pattern for each name, and ? for such a character")
	case len(part) > maxName:
		return fmt.Errorf("a part has %d bytes, and no name has more than %d", len(part), maxName)
	}
	for piece := range strings.FieldsFuncSeq(part, isWild) {
		if fold(piece) == "" {
			return fmt.Errorf("%q is nothing that is seen; name something", piece)
		}
		if !norm.NFKC.PropertiesString(piece).BoundaryBefore() {
			return fmt.Errorf("%q begins with a mark of the character before it; write that character too", piece)
		}
	}
	return nil
}

func isWild(r rune) bool { return r == '*' || r == '?' }

// checkPath wants a real path: absolute, clean, not the root itself.
func checkPath(text string) error {
	switch {
	case !strings.HasPrefix(text, "/"):
		return fmt.Errorf("%q is not an absolute path", clip(text))
	case text == "/":
		return errors.New("it is the root itself")
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%q has a zero byte", clip(text))
	}
	for part := range strings.SplitSeq(text[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%q is not clean", clip(text))
		}
	}
	return nil
}

// clip keeps hostile text from filling an error message.
func clip(text string) string {
	const limit = 120
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
