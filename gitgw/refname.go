package gitgw

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxRef bounds a ref's name in bytes. Forges store refs as paths, and GitHub
// stops far earlier.
const maxRef = 1024

// checkRef accepts a full ref name under refs/. It is git-check-ref-format(1)
// and stricter: the name must be valid UTF-8 without any Unicode space, control
// or format character, since git, go-git and people read those differently
// (go-git ends a name at U+00A0; a zero-width space makes two refs look alike).
func checkRef(ref string) error {
	if len(ref) > maxRef {
		return fmt.Errorf("ref name is longer than %d bytes", maxRef)
	}
	if !strings.HasPrefix(ref, "refs/") {
		return fmt.Errorf("ref %s does not begin with refs/", quote(ref))
	}
	if !utf8.ValidString(ref) {
		return fmt.Errorf("ref %s is not valid UTF-8", quote(ref))
	}
	for _, r := range ref {
		switch {
		case r <= ' ', r == 0x7f, unicode.IsSpace(r), unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp):
			return fmt.Errorf("ref %s holds a space, control or invisible character", quote(ref))
		case strings.ContainsRune(`~^:?*[\`, r):
			return fmt.Errorf("ref %s holds %q, which git does not allow", quote(ref), r)
		}
	}
	if strings.Contains(ref, "..") || strings.Contains(ref, "@{") {
		return fmt.Errorf("ref %s holds .. or @{", quote(ref))
	}
	// Each component becomes a file's name in many a forge.
	for part := range strings.SplitSeq(ref, "/") {
		switch {
		case part == "":
			return fmt.Errorf("ref %s has an empty component", quote(ref))
		case part[0] == '.', part[len(part)-1] == '.':
			return fmt.Errorf("ref %s has a component that begins or ends with a dot", quote(ref))
		case strings.HasSuffix(part, ".lock"):
			return fmt.Errorf("ref %s has a component that ends in .lock", quote(ref))
		}
	}
	return nil
}

// shortRef is the name people use: "main" for a branch, "tag v1" for a tag.
func shortRef(ref string) string {
	if branch, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
		return branch
	}
	if tag, ok := strings.CutPrefix(ref, "refs/tags/"); ok {
		return "tag " + tag
	}
	return ref
}

// quote prints hostile text on one line and at a bearable length.
func quote(s string) string {
	const limit = 80
	if len(s) > limit {
		return fmt.Sprintf("%q…", s[:limit])
	}
	return fmt.Sprintf("%q", s)
}

// echoable reports whether a ref name from a malformed push may stand in a
// status report: it cannot split the line it stands in, nor reach a terminal as
// anything but text.
func echoable(ref string) bool {
	if ref == "" || len(ref) > maxRef || !utf8.ValidString(ref) {
		return false
	}
	return !strings.ContainsFunc(ref, func(r rune) bool { return r <= ' ' || unicode.IsControl(r) })
}
