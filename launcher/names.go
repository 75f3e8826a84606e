package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"postern/launcher/nameguard"
	"postern/launcher/sandbox"
)

// Rules about names come from --deny-name, from the settings, from a pattern of --protect
// and from a host's spec. Each keeps where it was said, for the one who is refused by it.

// named makes rules of patterns.
func named(source string, texts []string) []nameguard.Rule {
	var out []nameguard.Rule
	for _, text := range texts {
		out = append(out, nameguard.Rule{Text: text, Source: source})
	}
	return out
}

// names reads a list of patterns of names.
func (r *reader) names(key string) []nameguard.Rule {
	texts := r.list(key)
	for _, text := range texts {
		if _, err := nameguard.Parse(text); err != nil {
			r.fail(key, err)
		}
	}
	return named(key+" of "+r.from(key), texts)
}

// folders reads a list of absolute paths, none of which is a pattern.
func (r *reader) folders(key string) []string {
	out := r.paths(key)
	for _, path := range out {
		if sandbox.IsGlob(path) {
			r.fail(key, fmt.Errorf("%q is a pattern; name the folders", path))
		}
	}
	return out
}

// names takes the flags about names.
func (r *request) names(deny, free []string) error {
	for _, text := range deny {
		if _, err := nameguard.Parse(text); err != nil {
			return fmt.Errorf("--deny-name: %w", err)
		}
	}
	r.DenyNames = append(r.DenyNames, named("--deny-name", deny)...)
	for _, text := range free {
		path, err := filepath.Abs(text)
		if err != nil {
			return fmt.Errorf("find folder %s: %w", text, err)
		}
		// Whoever could put another in its place would free that.
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			err = errors.New("it is no folder")
		}
		if err != nil {
			return fmt.Errorf("--free-dir %s: what is to be free must be there: %w", text, err)
		}
		r.FreeDirs = append(r.FreeDirs, path)
	}
	return nil
}

// askNames says in a profile what is asked about names. globs are those of --protect.
func (r *request) askNames(p *sandbox.Profile, globs []string) {
	p.NameGlobs = append(named("--protect", globs), r.DenyNames...)
	p.NameFree, p.NameRemove, p.Guard = r.FreeDirs, r.DenyRemove, r.Guard
}

// onTheWay reports whether a rule refuses target only because it leads to what the rule
// forbids.
func onTheWay(target, rule string) bool {
	rules, err := nameguard.Compile(nameguard.Config{Globs: []nameguard.Rule{{Text: rule}}})
	dir, name := path.Split(target)
	if err != nil || dir == "" {
		return false
	}
	asks := func(op nameguard.Op) bool { return rules.Check([]byte(path.Clean(dir)), []byte(name), op) != nil }
	return asks(nameguard.OpMakeOther) && !asks(nameguard.OpMakeDir)
}

// refusedName says by which rule a call was refused, and what would let it be, by where the
// rule stands.
func refusedName(target, rule, source string) (why, cure string) {
	shown := printable(rule)
	if source != "" {
		shown += " (" + printable(source) + ")"
	}
	switch {
	case strings.HasPrefix(rule, nameguard.MoveOut):
		return "what was filled where names are free stays there: no " + shown, "copy it, for then each name in it is judged"
	case source == nameguard.SourceFree, source == nameguard.SourceMount:
		return shown + " stays where it is", "leave it there, and what it lies in"
	case source == nameguard.SourceKept:
		return "it is refused by " + shown, "no run changes it: do that outside"
	case source == nameguard.SourceProtected:
		return "it is refused by " + shown, "where the run needs it: take it out of --protect, or of protect in the settings"
	case source == nameguard.SourceHidden:
		return "it is refused by " + shown, "where the run needs it: take it out of --hide, or of hide in the settings"
	case onTheWay(target, rule):
		return "on the way to " + shown + " only folders are made, and stay where they are", curedWay(target, rule, source)
	}
	return "the name is refused by " + shown, curedName(rule, source)
}

// curedTrees is for what git makes for more than one worktree, or repository, at a time.
const curedTrees = "linked worktrees and submodules need it: add them outside the run; a worktree can be added in a run without patterns of names"

// ofTrees reports whether a rule is one of those that keep git from making these.
func ofTrees(rule, source string) bool {
	return source == nameguard.SourceDefault && (strings.Contains(rule, "/.git/worktrees/") || strings.Contains(rule, "/.git/modules/"))
}

// curedName says what would let a name be made that a rule forbids.
func curedName(rule, source string) string {
	if ofTrees(rule, source) {
		return curedTrees
	}
	switch source {
	case nameguard.SourceGuard:
		return "use another name; it can be made with --guard-names off, or in a folder of --free-dir"
	case nameguard.SourceDefault:
		return "use another name, or name the folder with --free-dir; a run without patterns of names forbids such a name at the top of its folders alone"
	}
	return "use another name, take the rule back where it stands, or name the folder with --free-dir"
}

// curedWay is curedName of a name that leads to what a rule forbids.
func curedWay(target, rule, source string) string {
	switch {
	case strings.EqualFold(path.Base(target), ".git"), ofTrees(rule, source):
		return curedTrees
	case source == nameguard.SourceGuard:
		return "leave it where it is; it can be moved with --guard-names off, or in a folder of --free-dir"
	case source == nameguard.SourceDefault:
		return "leave it where it is, or name the folder with --free-dir"
	}
	return "leave it where it is, take the rule back where it stands, or name the folder with --free-dir"
}
