package gitgw

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RefPattern matches ref names. It is written as
//
//	main          the branch refs/heads/main
//	agent/**      every branch below agent/
//	release/*     branches release/1, release/2, not release/1/fix
//	tag:v*        tags
//	refs/notes/*  anything else, by its full name
//
// `*` stands for any characters within one segment, also none. `**` is a segment
// of its own: at the end it matches one or more segments, elsewhere none or
// more, so that `**/secret` matches secret at any depth. Case counts, as in git.
// The zero value matches nothing.
type RefPattern struct {
	text     string
	segments []string
}

// ParseRefPattern reads one pattern. It refuses a pattern that no ref can match,
// because a rule that silently never matches is worse than an error.
func ParseRefPattern(text string) (RefPattern, error) {
	full, err := expandRef(text)
	if err != nil {
		return RefPattern{}, fmt.Errorf("parse ref pattern %q: %w", text, err)
	}
	p := RefPattern{text: text, segments: strings.Split(full, "/")}
	for i, s := range p.segments {
		if strings.Contains(s, "**") && s != "**" {
			return RefPattern{}, fmt.Errorf("parse ref pattern %q: ** must be a whole segment, as in agent/**", text)
		}
		if s == "**" && i > 0 && p.segments[i-1] == "**" {
			return RefPattern{}, fmt.Errorf("parse ref pattern %q: one ** is enough", text)
		}
	}
	// A pattern can match something if it does with each star filled in.
	if err := checkRef(strings.ReplaceAll(strings.ReplaceAll(full, "**", "x"), "*", "x")); err != nil {
		return RefPattern{}, fmt.Errorf("parse ref pattern %q: no ref can match: %w", text, err)
	}
	return p, nil
}

// expandRef turns the short forms into a full name.
func expandRef(text string) (string, error) {
	tag, isTag := strings.CutPrefix(text, "tag:")
	switch {
	case text == "":
		return "", errors.New("empty")
	case isTag && strings.HasPrefix(tag, "refs/"):
		return "", errors.New("a full name needs no tag prefix")
	case isTag:
		return "refs/tags/" + tag, nil
	case strings.HasPrefix(text, "refs/"):
		return text, nil
	case text == "HEAD", text == "refs":
		return "", errors.New("not a branch")
	case text[0] == '!':
		return "", errors.New("begins with !; write a deny rule")
	case text[0] == '/':
		return "", errors.New("begins with a slash")
	}
	return "refs/heads/" + text, nil
}

// Match reports whether the full ref name ref is one of p's.
func (p RefPattern) Match(ref string) bool {
	return len(p.segments) > 0 && matchSegments(p.segments, strings.Split(ref, "/"))
}

// String is the pattern as it was written.
func (p RefPattern) String() string { return p.text }

// MarshalText writes the pattern as it was written.
func (p RefPattern) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// UnmarshalText is [ParseRefPattern].
func (p *RefPattern) UnmarshalText(text []byte) error {
	parsed, err := ParseRefPattern(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// within reports whether every ref that p matches is matched by q too, and not
// the other way round. It never says yes wrongly: a star of p can only be
// consumed by a star of q, so matching q against p's own text is a proof.
func (p RefPattern) within(q RefPattern) bool {
	return matchSegments(q.segments, p.segments) && !matchSegments(p.segments, q.segments)
}

// matchSegments matches text, segment by segment, in time len(pattern) ×
// len(text). row[j] says whether the pattern from i on matches the text from j
// on.
func matchSegments(pattern, text []string) bool {
	n := len(text)
	row := make([]bool, n+1)
	row[n] = true
	for i, segment := range slices.Backward(pattern) {
		next := make([]bool, n+1)
		for j := n; j >= 0; j-- {
			switch {
			case segment == "**" && i == len(pattern)-1:
				next[j] = j < n
			case segment == "**":
				next[j] = row[j] || j < n && next[j+1]
			case j < n && text[j] != "**":
				next[j] = matchSegment(segment, text[j]) && row[j+1]
			}
		}
		row = next
	}
	return row[0]
}

// matchSegment matches one segment, going back only to the last star: linear
// for one star and never worse than len(pattern) × len(s).
func matchSegment(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// RepoPattern matches repositories: HOST/OWNER/NAME, where owner and name may
// hold `*`, as in github.com/acme/*. The host is always literal: a rule for a
// forge nobody configured would be a surprise.
type RepoPattern struct{ host, owner, name string }

// ParseRepoPattern reads one pattern. A name without star is held to the rules
// of [ParseRepo].
func ParseRepoPattern(text string) (RepoPattern, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return RepoPattern{}, fmt.Errorf("parse repository pattern %q: want HOST/OWNER/NAME, as in github.com/acme/*", text)
	}
	p := RepoPattern{lower(parts[0]), lower(parts[1]), strings.TrimSuffix(lower(parts[2]), ".git")}
	err := errors.Join(checkHost(p.host), checkSegment("owner", p.owner, true), checkSegment("name", p.name, true))
	if err != nil {
		return RepoPattern{}, fmt.Errorf("parse repository pattern %q: %w", text, err)
	}
	if strings.Contains(p.owner+"/"+p.name, "**") {
		return RepoPattern{}, fmt.Errorf("parse repository pattern %q: write */* for every repository of a host", text)
	}
	return p, nil
}

// Match reports whether repo is one of p's.
func (p RepoPattern) Match(repo Repo) bool {
	return p.host == repo.host && p.host != "" && matchSegment(p.owner, repo.owner) && matchSegment(p.name, repo.name)
}

// String is the canonical pattern.
func (p RepoPattern) String() string { return p.host + "/" + p.owner + "/" + p.name }

// rank orders patterns that match the same repository: a literal owner first,
// then a literal name, then more literal characters.
func (p RepoPattern) rank() [3]int {
	var r [3]int
	if !strings.Contains(p.owner, "*") {
		r[0] = 1
	}
	if !strings.Contains(p.name, "*") {
		r[1] = 1
	}
	r[2] = len(strings.ReplaceAll(p.owner+p.name, "*", ""))
	return r
}
