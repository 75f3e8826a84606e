package gitgw

import (
	"fmt"
	"strings"
)

// maxSegment bounds an owner's or a repository's name; GitHub's own limits are
// 39 and 100.
const maxSegment = 100

// Repo names one repository of one forge. It is canonical (lower case, no
// ".git"), because forges ignore case in these names and two spellings of one
// repository must not be two repositories for a rule. It is comparable; the
// zero value names nothing.
type Repo struct{ host, owner, name string }

// ParseRepo reads HOST/OWNER/NAME, as in "github.com/acme/app". Case is folded
// and one ".git" at the end is dropped. Names are plain ASCII without escapes:
// what a URL encodes must be decoded, once, before.
func ParseRepo(text string) (Repo, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return Repo{}, fmt.Errorf("parse repository %q: want HOST/OWNER/NAME", text)
	}
	repo, err := newRepo(parts[0], parts[1], parts[2])
	if err != nil {
		return Repo{}, fmt.Errorf("parse repository %q: %w", text, err)
	}
	return repo, nil
}

func newRepo(host, owner, name string) (Repo, error) {
	name = strings.TrimSuffix(name, ".git")
	if err := checkHost(host); err != nil {
		return Repo{}, err
	}
	if err := checkSegment("owner", owner, false); err != nil {
		return Repo{}, err
	}
	if err := checkSegment("name", name, false); err != nil {
		return Repo{}, err
	}
	return Repo{lower(host), lower(owner), lower(name)}, nil
}

// Host is the forge's host in lower case, without port.
func (r Repo) Host() string { return r.host }

// Owner is the account the repository belongs to.
func (r Repo) Owner() string { return r.owner }

// Name is the repository's name without owner and without ".git".
func (r Repo) Name() string { return r.name }

// FullName is OWNER/NAME, as forges and people write it.
func (r Repo) FullName() string { return r.owner + "/" + r.name }

// IsZero reports whether r names nothing.
func (r Repo) IsZero() bool { return r == Repo{} }

// String is HOST/OWNER/NAME, which [ParseRepo] reads back.
func (r Repo) String() string {
	if r.IsZero() {
		return ""
	}
	return r.host + "/" + r.owner + "/" + r.name
}

// MarshalText writes String, so that a Repo is a plain string in JSON.
func (r Repo) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Repo) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Repo{}
		return nil
	}
	parsed, err := ParseRepo(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

// checkHost accepts letters, digits and hyphens in dotted labels, without port,
// root dot or brackets: a host that needs more is named by a forge block.
func checkHost(host string) error {
	if host == "" || len(host) > 253 {
		return fmt.Errorf("host %q: want 1 to 253 characters", host)
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("host %q: malformed label %q", host, label)
		}
		for i := range len(label) {
			if c := label[i]; !isAlnum(c) && c != '-' {
				return fmt.Errorf("host %q: character %q is not allowed", host, c)
			}
		}
	}
	return nil
}

// checkSegment accepts one path segment of a repository's name, with `*` where
// glob is set. A leading dot or hyphen is refused, which also excludes "." and
// "..", hidden folders of forges that keep repositories on disk, and names that
// could be read as options.
func checkSegment(what, s string, glob bool) error {
	if s == "" || len(s) > maxSegment {
		return fmt.Errorf("%s %q: want 1 to %d characters", what, s, maxSegment)
	}
	for i := range len(s) {
		c := s[i]
		if !isAlnum(c) && c != '-' && c != '_' && c != '.' && (!glob || c != '*') {
			return fmt.Errorf("%s %q: character %q is not allowed", what, s, c)
		}
	}
	if s[0] == '.' || s[0] == '-' {
		return fmt.Errorf("%s %q: must not begin with %q", what, s, s[0])
	}
	// No forge has repositories that end so; "app.git.git" is a path trick.
	if strings.HasSuffix(lower(s), ".git") {
		return fmt.Errorf("%s %q: must not end in .git", what, s)
	}
	return nil
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// lower folds ASCII only: strings.ToLower would turn the Kelvin sign into a k
// and so make a forbidden name into an allowed one.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
