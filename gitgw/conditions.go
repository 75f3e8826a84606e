package gitgw

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// Conditions hold for a push as a whole. The strictest of those that the rules of
// its refs and their block name counts.
type Conditions struct {
	// MaxRefs is the most refs in one push, 0 for no other limit than the gateway's.
	MaxRefs int
	// MaxPack is the most bytes of a pack, 0 for none.
	MaxPack int64
	// Secrets refuses a push whose pack holds what looks like a credential.
	Secrets bool
	// Protect are paths that a push may not change.
	Protect []PathPattern
}

// String says what is asked for, in words; "" for nothing.
func (c Conditions) String() string {
	var words []string
	if c.MaxRefs > 0 {
		words = append(words, fmt.Sprintf("at most %d refs", c.MaxRefs))
	}
	if c.MaxPack > 0 {
		words = append(words, "a pack of at most "+bytesText(c.MaxPack))
	}
	if c.Secrets {
		words = append(words, "no secrets")
	}
	if len(c.Protect) > 0 {
		var paths []string
		for _, p := range c.Protect {
			paths = append(paths, p.text)
		}
		words = append(words, "no change of "+strings.Join(paths, ", "))
	}
	if len(words) == 0 {
		return ""
	}
	return "if it has " + strings.Join(words, ", ")
}

// and is what holds where both hold.
func (c Conditions) and(d Conditions) Conditions {
	c.MaxRefs = least(c.MaxRefs, d.MaxRefs)
	c.MaxPack = least(c.MaxPack, d.MaxPack)
	c.Secrets = c.Secrets || d.Secrets
	for _, p := range d.Protect {
		if !containsPath(c.Protect, p) {
			c.Protect = append(slices.Clip(c.Protect), p)
		}
	}
	return c
}

func containsPath(list []PathPattern, p PathPattern) bool {
	for _, q := range list {
		if q.text == p.text {
			return true
		}
	}
	return false
}

// least is the smaller of two limits, of which 0 is none.
func least[T int | int64](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// content reports whether the conditions are about what the pack holds.
func (c Conditions) content() bool { return c.Secrets || len(c.Protect) > 0 }

// readsContent reports whether a rule for repo may want to look at what is pushed.
func (r *Rules) readsContent(repo Repo) bool {
	block, err := r.block(repo)
	if err != nil {
		return false
	}
	for _, rule := range block.Rules {
		if rule.Kind != Deny && rule.Conditions.content() {
			return true
		}
	}
	return block.Conditions.content()
}

// OptionPattern matches push options: `*` stands for any characters.
type OptionPattern struct{ text string }

// ParseOptionPattern reads one pattern, as in ci.skip or ci.*.
func ParseOptionPattern(text string) (OptionPattern, error) {
	if text == "" || strings.ContainsFunc(text, unicode.IsControl) {
		return OptionPattern{}, fmt.Errorf("parse option pattern %q: want the words of push options, with * for any characters", text)
	}
	return OptionPattern{text}, nil
}

// String is the pattern as it was written.
func (p OptionPattern) String() string { return p.text }

// CheckOptions says why a push to repo with these options is refused, "" if it is
// not. Options make forges act, change a repository's visibility for one, and no
// rule for refs speaks of that: what no pattern names is refused.
func (r *Rules) CheckOptions(repo Repo, options []string) string {
	if len(options) == 0 {
		return ""
	}
	block, err := r.block(repo)
	if err != nil {
		return err.Error()
	}
next:
	for _, option := range options {
		for _, p := range block.Options {
			if matchSegment(p.text, option) {
				continue next
			}
		}
		return "push option " + quote(option) + " is not allowed"
	}
	return ""
}

// PathPattern matches paths in a repository, without regard to the case of ASCII
// letters, since some file systems have none. A pattern that matches a folder
// matches everything below it.
//
//	.github/workflows   the folder and all it holds
//	**/CODEOWNERS       the file at any depth
//	deploy/*.yaml       files of one folder
type PathPattern struct {
	text     string
	segments []string
}

// ParsePathPattern reads one pattern.
func ParsePathPattern(text string) (PathPattern, error) {
	clean := strings.TrimSuffix(text, "/")
	// deploy/** is deploy and all that it holds.
	clean = strings.TrimSuffix(clean, "/**")
	err := func() error {
		switch {
		case clean == "" || clean == "**":
			return errors.New("names no path; deny the refs instead")
		case clean[0] == '/' || clean[0] == '!' || path.Clean(clean) != clean || clean == ".." || strings.HasPrefix(clean, "../"):
			return errors.New("want a path below the repository's root, as in .github/workflows")
		case strings.ContainsFunc(clean, func(r rune) bool { return unicode.IsControl(r) || r == '\\' }):
			return errors.New("holds a character that paths do not")
		}
		for s := range strings.SplitSeq(clean, "/") {
			if strings.Contains(s, "**") && s != "**" {
				return errors.New("** must be a whole segment, as in **/CODEOWNERS")
			}
		}
		if strings.HasSuffix(clean, "/**") || strings.Contains(clean, "**/**") {
			return errors.New("one ** is enough")
		}
		return nil
	}()
	if err != nil {
		return PathPattern{}, fmt.Errorf("parse path pattern %q: %w", text, err)
	}
	return PathPattern{text: text, segments: strings.Split(lower(clean), "/")}, nil
}

// String is the pattern as it was written.
func (p PathPattern) String() string { return p.text }

// reach is what a pattern has to do with a path.
type reach uint8

const (
	apart   reach = iota // nothing, nor with anything below it
	maybe                // it may match below, after a **
	toward               // the path is a part of the pattern, segment by segment
	matches              // the path, and so everything below it
)

// reaches says what p has to do with a path given by its segments.
func (p PathPattern) reaches(path []string) reach {
	return reaching(p.segments, path)
}

func reaching(pattern, path []string) reach {
	switch {
	case len(pattern) == 0:
		return matches
	case len(path) == 0:
		return toward
	case pattern[0] == "**":
		// None of the path's segments, or one more of them. What comes after a star
		// has been used up may be anywhere.
		best := max(reaching(pattern[1:], path), reaching(pattern, path[1:]))
		if best == matches {
			return matches
		}
		return maybe
	case matchSegment(pattern[0], lower(path[0])):
		return reaching(pattern[1:], path[1:])
	}
	return apart
}

// bytesText writes a size as people do: 50 MB, 16 MiB.
func bytesText(n int64) string {
	units := []struct {
		size int64
		name string
	}{{1e9, "GB"}, {1 << 30, "GiB"}, {1e6, "MB"}, {1 << 20, "MiB"}, {1e3, "kB"}, {1 << 10, "KiB"}}
	for _, u := range units {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
