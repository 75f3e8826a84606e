package spec

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a Spec, generous for people and small for memory.
const (
	// MaxSpec bounds the JSON text, in bytes.
	MaxSpec = 256 << 10

	maxList  = 1024 // entries of a list
	maxText  = 256  // names, in bytes
	maxRule  = 512  // one line of an allowlist
	maxPath  = 4096 // PATH_MAX of Linux
	maxIDLen = 64   // of a session's id
)

// Mode is what a run is for (SPEC 77).
type Mode string

// The modes. Only chat writes its mounts.
const (
	Chat        Mode = "chat"
	Review      Mode = "review"
	Plan        Mode = "plan"
	Orchestrate Mode = "orchestrate"
)

// Spec is the specification's SandboxSpec: its eleven fields, and no other.
type Spec struct {
	// SessionID names the run: 1 to 64 of A-Z a-z 0-9 _ -.
	SessionID string `json:"sessionId"`

	// WorkspaceID and AgentID are for audit records.
	WorkspaceID string `json:"workspaceId"`
	AgentID     string `json:"agentId,omitempty"`

	// BindMounts are the host paths the run sees; no other of the home is there.
	BindMounts []BindMount `json:"bindMounts"`

	// NetworkEnabled false keeps the proxies up and refuses everything sent to them.
	// It is true where the text does not say.
	NetworkEnabled bool `json:"networkEnabled"`

	// EgressAllowlist adds rules to the policy for this run alone.
	EgressAllowlist []string `json:"egressAllowlist"`

	// GuestWorkdir is where commands start, unless they say otherwise; empty means the
	// first mount.
	GuestWorkdir string `json:"guestWorkdir,omitempty"`

	// Mode is chat where the text does not say. An unknown one is an error.
	Mode Mode `json:"mode"`

	// ProtectedPaths are never writable, in any mode. An entry with * or ? is a glob of
	// file names and is left as it is (SPEC 82).
	ProtectedPaths []string `json:"protectedPaths"`

	// RunnerStateDirs are writable in every mode, settings and hooks in them excepted.
	RunnerStateDirs []string `json:"runnerStateDirs"`

	// ExecGrantRoots may hold programs although they are writable. Linux has no exec
	// lock that they could lift: there they are ignored (SPEC 50).
	ExecGrantRoots []string `json:"execGrantRoots"`
}

// BindMount is one host path that the run sees.
type BindMount struct {
	HostPath string `json:"hostPath"`

	// GuestPath is the path inside; empty means HostPath. No other is possible for a
	// native sandbox, which has no file system of its own.
	GuestPath string `json:"guestPath,omitempty"`

	ReadOnly bool `json:"readOnly"`
}

// Default is a Spec as it is before a text says anything.
func Default() Spec { return Spec{NetworkEnabled: true, Mode: Chat} }

// Writes reports whether the mode leaves bind mounts writable.
func (m Mode) Writes() bool { return m == Chat }

// ParseMode reads a mode, exactly (SPEC decision 8).
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); m {
	case Chat, Review, Plan, Orchestrate:
		return m, nil
	}
	return "", fmt.Errorf("%q is not a mode: want chat, review, plan or orchestrate", clip(text))
}

// IsGlob reports whether an entry of ProtectedPaths is a pattern and no path.
func IsGlob(entry string) bool { return strings.ContainsAny(entry, "*?") }

// Globs are the entries of ProtectedPaths that are patterns.
func (s *Spec) Globs() []string { return filter(s.ProtectedPaths, true) }

// Protected are the entries of ProtectedPaths that are paths.
func (s *Spec) Protected() []string { return filter(s.ProtectedPaths, false) }

func filter(entries []string, globs bool) []string {
	var out []string
	for _, e := range entries {
		if IsGlob(e) == globs {
			out = append(out, e)
		}
	}
	return out
}

// CheckNative says what a native sandbox cannot give: a mount at another path
// (SPEC 85).
func (s *Spec) CheckNative() error {
	for i, m := range s.BindMounts {
		if m.GuestPath != "" && path.Clean(m.GuestPath) != path.Clean(m.HostPath) {
			return fmt.Errorf("bindMounts[%d].guestPath: %q is not the hostPath %q: a native sandbox shows a path where it is, or not at all", i, clip(m.GuestPath), clip(m.HostPath))
		}
	}
	return nil
}

// Validate checks everything that can be checked without looking at the disk. The
// error names the field.
func (s *Spec) Validate() error {
	if err := ValidateID(s.SessionID); err != nil {
		return fmt.Errorf("sessionId: %w", err)
	}
	for _, f := range []struct{ name, text string }{{"workspaceId", s.WorkspaceID}, {"agentId", s.AgentID}} {
		if err := checkText(f.text, maxText); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if _, err := ParseMode(string(s.Mode)); err != nil {
		return fmt.Errorf("mode: %w", err)
	}
	if s.GuestWorkdir != "" {
		if err := checkPath(s.GuestWorkdir); err != nil {
			return fmt.Errorf("guestWorkdir: %w", err)
		}
	}
	if err := s.checkMounts(); err != nil {
		return err
	}
	return s.checkLists()
}

func (s *Spec) checkMounts() error {
	if len(s.BindMounts) > maxList {
		return fmt.Errorf("bindMounts: %d entries, at most %d", len(s.BindMounts), maxList)
	}
	for i, m := range s.BindMounts {
		if err := checkPath(m.HostPath); err != nil {
			return fmt.Errorf("bindMounts[%d].hostPath: %w", i, err)
		}
		if m.GuestPath != "" {
			if err := checkPath(m.GuestPath); err != nil {
				return fmt.Errorf("bindMounts[%d].guestPath: %w", i, err)
			}
		}
	}
	return nil
}

func (s *Spec) checkLists() error {
	for _, list := range []struct {
		name    string
		entries []string
		check   func(string) error
	}{
		{"egressAllowlist", s.EgressAllowlist, checkRule},
		{"protectedPaths", s.ProtectedPaths, checkPathOrGlob},
		{"runnerStateDirs", s.RunnerStateDirs, checkPath},
		{"execGrantRoots", s.ExecGrantRoots, checkPath},
	} {
		if len(list.entries) > maxList {
			return fmt.Errorf("%s: %d entries, at most %d", list.name, len(list.entries), maxList)
		}
		for i, e := range list.entries {
			if err := list.check(e); err != nil {
				return fmt.Errorf("%s[%d]: %w", list.name, i, err)
			}
		}
	}
	return nil
}

// ValidateID checks a session's id by the rule of the lease: ids become file names and
// parts of URLs.
func ValidateID(id string) error {
	ok := id != "" && len(id) <= maxIDLen
	for _, c := range []byte(id) {
		ok = ok && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	}
	if !ok {
		return fmt.Errorf("%q is not a session id (1 to %d of A-Z a-z 0-9 _ -)", clip(id), maxIDLen)
	}
	return nil
}

// checkPath wants an absolute path that means the same to everybody: ".." leads
// elsewhere behind a symlink than in the text.
func checkPath(text string) error {
	switch {
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%q contains a NUL", clip(text))
	case !path.IsAbs(text):
		return fmt.Errorf("%q is not an absolute path", clip(text))
	case len(text) > maxPath:
		return fmt.Errorf("%d bytes, at most %d", len(text), maxPath)
	}
	for part := range strings.SplitSeq(text, "/") {
		if part == ".." {
			return fmt.Errorf("%q contains a \"..\"", clip(text))
		}
	}
	return nil
}

func checkPathOrGlob(text string) error {
	if !IsGlob(text) {
		return checkPath(text)
	}
	return checkText(text, maxPath)
}

func checkRule(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("the rule is empty")
	}
	return checkText(text, maxRule)
}

func checkText(text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("%d bytes, at most %d", len(text), limit)
	case !utf8.ValidString(text):
		return errors.New("not UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%q contains a control character", clip(text))
	}
	return nil
}

// clip keeps hostile text from filling an error message.
func clip(text string) string {
	const limit = 80
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
