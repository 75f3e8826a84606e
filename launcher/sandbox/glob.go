package sandbox

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// IsGlob reports whether a path given by the user is a pattern: it has a star or a
// question mark (SPEC 82). Whether something of that very name is there does not count,
// for a run could make it. Brackets and braces are ordinary characters of file names.
func IsGlob(text string) bool { return strings.ContainsAny(text, "*?") }

// maxGlobs bounds how many patterns one run has: each is a bit of a mask.
const maxGlobs = 64

// glob is one pattern, split at its slashes. A star is any part of one name, a question
// mark one character, two stars alone any number of folders, none included. Letters of
// ASCII match in either case: KEY.PEM is as secret as key.pem, and on some volumes it
// is the same file.
type glob struct {
	text  string // as the user gave it
	parts []string
	abs   bool // matched against the whole path, else against what is below the root
}

// parseGlob reads a pattern.
func parseGlob(text string) (glob, error) {
	g := glob{abs: strings.HasPrefix(text, "/")}
	if strings.ContainsRune(text, 0) {
		return g, fmt.Errorf("parse pattern %q: it contains a zero byte", text)
	}
	for part := range strings.SplitSeq(text, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return g, fmt.Errorf("parse pattern %q: it goes up", text)
		case part == "**" && len(g.parts) > 0 && g.parts[len(g.parts)-1] == "**":
		default:
			g.parts = append(g.parts, lowerASCII(part))
		}
	}
	if len(g.parts) == 0 {
		return g, fmt.Errorf("parse pattern %q: it names nothing", text)
	}
	// What is at the end of two stars is everything in a folder, and to take away what
	// lies directly in it is to take away all of it.
	if last := len(g.parts) - 1; g.parts[last] == "**" {
		g.parts[last] = "*"
	}
	return g, nil
}

// globSet is the patterns that one walk looks for.
type globSet struct {
	globs []glob
	// first and last say by the first and the last byte of a name which patterns can
	// match it at all: that is all that most names are asked.
	first, last [256]uint64
}

// parseGlobs reads patterns. What leads through symbolic links to where a pattern begins
// is followed, and the pattern taken both ways.
func parseGlobs(texts []string) (*globSet, error) {
	if len(texts) == 0 {
		return nil, nil //nolint:nilnil // nothing to look for
	}
	s := new(globSet)
	for _, text := range texts {
		g, err := parseGlob(text)
		if err != nil {
			return nil, err
		}
		g.text = text
		s.globs = append(s.globs, g)
		if fixed := fixedPart(text); g.abs && fixed != "/" {
			if target, err := filepath.EvalSymlinks(fixed); err == nil && target != filepath.Clean(fixed) {
				g, err := parseGlob(strings.TrimSuffix(target, "/") + text[len(fixed):])
				if err != nil {
					return nil, err
				}
				g.text = text
				s.globs = append(s.globs, g)
			}
		}
	}
	if len(s.globs) > maxGlobs {
		return nil, fmt.Errorf("parse patterns: %d, at most %d", len(s.globs), maxGlobs)
	}
	for i, g := range s.globs {
		base := g.parts[len(g.parts)-1]
		bit := uint64(1) << i
		for b := range 256 {
			c := lowerByte(byte(b))
			if strings.IndexByte("*?", base[0]) >= 0 || base[0] == c {
				s.first[b] |= bit
			}
			if end := base[len(base)-1]; strings.IndexByte("*?", end) >= 0 || end == c {
				s.last[b] |= bit
			}
		}
	}
	return s, nil
}

// absolute reports whether a pattern speaks of more than the folders of the run.
func (s *globSet) absolute() bool {
	return s != nil && slices.ContainsFunc(s.globs, func(g glob) bool { return g.abs })
}

// fixedPart is the folder of a pattern that comes before anything with a star.
func fixedPart(text string) string {
	at := strings.IndexAny(text, "*?")
	if at < 0 {
		return text
	}
	if at = strings.LastIndexByte(text[:at], '/'); at <= 0 {
		return "/"
	}
	return text[:at]
}

// match is the first pattern that the entry name of the folder dir matches, which is root
// or below it; empty if none does. Without a root, only those that are absolute count.
func (s *globSet) match(root, dir string, name []byte) string {
	if s == nil || len(name) == 0 {
		return ""
	}
	bits := s.first[name[0]] & s.last[name[len(name)-1]]
	if bits == 0 {
		return ""
	}
	var folders [2][]string // of the whole path, and of what is below the root
	for i := range s.globs {
		g := &s.globs[i]
		if bits>>i&1 == 0 || !g.abs && root == "" || !matchName(g.parts[len(g.parts)-1], name) {
			continue
		}
		from, which := "", 0
		if !g.abs {
			from, which = root, 1
		}
		if folders[which] == nil {
			folders[which] = splitPath(strings.TrimPrefix(dir, from))
		}
		if matchParts(g.parts[:len(g.parts)-1], folders[which]) {
			return g.text
		}
	}
	return ""
}

func splitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return []string{}
	}
	return strings.Split(path, "/")
}

// matchParts matches folders. Only the last two stars met are gone back to, so that it
// takes no more than the product of the lengths.
func matchParts(parts, path []string) bool {
	back, from := -1, 0
	i := 0
	for at := 0; at < len(path); {
		switch {
		case i < len(parts) && parts[i] == "**":
			back, from = i, at
			i++
		case i < len(parts) && matchName(parts[i], []byte(path[at])):
			i++
			at++
		case back >= 0:
			from++
			i, at = back+1, from
		default:
			return false
		}
	}
	for i < len(parts) && parts[i] == "**" {
		i++
	}
	return i == len(parts)
}

// matchName matches one name; the pattern is in lower case.
func matchName(pattern string, name []byte) bool {
	back, from := -1, 0
	i := 0
	for at := 0; at < len(name); {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			back, from = i, at
			i++
		case i < len(pattern) && pattern[i] == '?':
			_, size := utf8.DecodeRune(name[at:])
			i++
			at += size
		case i < len(pattern) && pattern[i] == lowerByte(name[at]):
			i++
			at++
		case back >= 0:
			_, size := utf8.DecodeRune(name[from:])
			from += size
			i, at = back+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func lowerASCII(text string) string {
	b := []byte(text)
	for i := range b {
		b[i] = lowerByte(b[i])
	}
	return string(b)
}

// hideGlobbed hides what a pattern found. A link was made by somebody, who may have been
// an earlier run, and chose what it leads to: only a file of the run's own folders is
// hidden for its sake.
func (f *Facts) hideGlobbed(n found) {
	if n.mode&fs.ModeSymlink == 0 {
		f.denyEntry(n, Hide)
		return
	}
	if target, info, err := resolve(n.path); err == nil && info.Mode().IsRegular() && f.shown(target) {
		at := len(f.Denials)
		f.deny(n.path, Hide)
		for i := at; i < len(f.Denials); i++ {
			f.Denials[i].asked, f.Denials[i].pattern = true, n.pattern
		}
	}
}
