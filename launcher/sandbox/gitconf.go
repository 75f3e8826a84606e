package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// setting is one line of a git configuration. The key is as `git config --list` prints
// it: section and variable in lower case, the subsection as it is.
type setting struct{ key, value string }

var errConfig = errors.New("not a git configuration")

// parseConfig reads a git configuration as git does (git-config(1), Syntax). What it
// does not understand is an error: git may understand it.
func parseConfig(text string) ([]setting, error) {
	var (
		out     []setting
		section string
	)
	text = strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff")
	for len(text) > 0 {
		switch c := text[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r':
			text = text[1:]
		case c == '#' || c == ';':
			_, text, _ = strings.Cut(text, "\n")
		case c == '[':
			var err error
			if section, text, err = parseSection(text[1:]); err != nil {
				return nil, err
			}
		case isKeyByte(c) && c != '-' && section != "":
			n := 0
			for n < len(text) && isKeyByte(text[n]) {
				n++
			}
			s := setting{key: section + "." + strings.ToLower(text[:n])}
			text = strings.TrimLeft(text[n:], " \t")
			// Without "=" it is a boolean that is true.
			if rest, ok := strings.CutPrefix(text, "="); ok {
				var err error
				if s.value, text, err = parseValue(rest); err != nil {
					return nil, err
				}
			} else if text != "" && !strings.ContainsRune("\n#;", rune(text[0])) {
				return nil, fmt.Errorf("%w: %q after a name", errConfig, text[0])
			}
			out = append(out, s)
		default:
			return nil, fmt.Errorf("%w: unexpected %q", errConfig, c)
		}
	}
	return out, nil
}

func isKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-'
}

// parseSection reads what follows "[", up to and with "]".
func parseSection(text string) (name, rest string, err error) {
	n := 0
	for n < len(text) && (isKeyByte(text[n]) || text[n] == '.') {
		n++
	}
	name, text = strings.ToLower(text[:n]), text[n:]
	if name == "" {
		return "", "", fmt.Errorf("%w: a section without a name", errConfig)
	}
	if rest, ok := strings.CutPrefix(text, "]"); ok {
		return name, rest, nil // [section], or the old [section.subsection]
	}
	text = strings.TrimLeft(text, " \t")
	if !strings.HasPrefix(text, `"`) {
		return "", "", fmt.Errorf("%w: section %q does not end", errConfig, name)
	}
	var sub strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; c {
		case '\n':
			return "", "", fmt.Errorf("%w: a line break in a section", errConfig)
		case '\\':
			if i++; i < len(text) {
				sub.WriteByte(text[i])
			}
		case '"':
			if rest, ok := strings.CutPrefix(text[i+1:], "]"); ok {
				return name + "." + sub.String(), rest, nil
			}
			return "", "", fmt.Errorf("%w: section %q does not end", errConfig, name)
		default:
			sub.WriteByte(c)
		}
	}
	return "", "", fmt.Errorf("%w: section %q does not end", errConfig, name)
}

// parseValue reads what follows "=", up to the end of the line.
func parseValue(text string) (value, rest string, err error) {
	var (
		b      strings.Builder
		quoted bool
		solid  int // length up to the last byte that is not white space outside of quotes
	)
	text = strings.TrimLeft(text, " \t\r")
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			if quoted {
				return "", "", fmt.Errorf("%w: a quote does not end", errConfig)
			}
			return b.String()[:solid], text[i+1:], nil
		case c == '"':
			quoted = !quoted
			solid = b.Len()
			continue
		case !quoted && (c == '#' || c == ';'):
			_, rest, _ = strings.Cut(text[i:], "\n")
			return b.String()[:solid], rest, nil
		case c == '\\':
			i++
			if i == len(text) || text[i] == '\n' {
				continue // the line goes on
			}
			at := strings.IndexByte(`tnb\"`, text[i])
			if at < 0 {
				return "", "", fmt.Errorf(`%w: \%c`, errConfig, text[i])
			}
			b.WriteByte("\t\n\b\\\""[at])
			solid = b.Len()
		default:
			b.WriteByte(c)
			if quoted || c != ' ' && c != '\t' && c != '\r' {
				solid = b.Len()
			}
		}
	}
	if quoted {
		return "", "", fmt.Errorf("%w: a quote does not end", errConfig)
	}
	return b.String()[:solid], "", nil
}

func readConfig(path string) ([]setting, error) {
	text, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	return parseConfig(text)
}

// ordinary are the variables that git init, clone, submodule, remote and branch write
// by themselves: none of them runs anything.
var ordinary = []string{
	"core.repositoryformatversion", "core.filemode", "core.bare", "core.logallrefupdates", "core.ignorecase",
	"core.precomposeunicode", "core.symlinks", "extensions.objectformat", "extensions.partialclone", "extensions.refstorage",
	"remote.*.url", "remote.*.fetch", "remote.*.mirror", "remote.*.promisor", "remote.*.partialclonefilter", "remote.*.tagopt",
	"branch.*.remote", "branch.*.merge", "submodule.active", "submodule.*.url", "submodule.*.active",
}

// unordinary is the first variable of the configuration at path that git would not have
// written there by itself, or what else is wrong with it; empty if nothing is.
func unordinary(path string) string {
	settings, err := readConfig(path)
	if err != nil {
		return err.Error()
	}
	for _, s := range settings {
		key := s.key
		if first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.'); first != last {
			key = key[:first] + ".*" + key[last:]
		}
		switch {
		case key == "core.worktree" && strings.Contains(path, "/.git/modules/"):
			// A submodule's leads back to where it is checked out.
		case !slices.Contains(ordinary, key), strings.HasSuffix(key, ".url") && strings.Contains(s.value, "::"):
			return s.key
		}
	}
	return ""
}

// acts are the variables whose value is a path that git reads configuration, hooks or
// attributes from, or a command that it runs. Subsections are written as "*".
var acts = map[string]bool{ // true: the whole value is one path
	"core.hookspath": true, "core.attributesfile": true, "include.path": true, "includeif.*.path": true, "init.templatedir": true,
	"core.fsmonitor": false, "core.sshcommand": false, "core.editor": false, "core.pager": false, "core.askpass": false, "core.gitproxy": false,
	"core.alternaterefscommand": false, "credential.helper": false, "credential.*.helper": false, "sequence.editor": false, "diff.external": false,
	"diff.*.command": false, "diff.*.textconv": false, "merge.*.driver": false, "filter.*.clean": false, "filter.*.smudge": false,
	"filter.*.process": false, "gpg.program": false, "gpg.*.program": false, "gpg.ssh.defaultkeycommand": false, "alias.*": false, "uploadpack.packobjectshook": false,
	"remote.*.uploadpack": false, "remote.*.receivepack": false, "submodule.*.update": false, "pager.*": false, "interactive.difffilter": false,
	"difftool.*.cmd": false, "mergetool.*.cmd": false, "difftool.*.path": false, "mergetool.*.path": false, "trailer.*.command": false, "trailer.*.cmd": false,
}

// actsOn returns what of a setting may be a path that matters.
func actsOn(s setting) []string {
	key := s.key
	if first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.'); first != last {
		key = key[:first] + ".*" + key[last:]
	}
	whole, ok := acts[key]
	if !ok {
		section, _, _ := strings.Cut(key, ".")
		whole, ok = acts[section+".*"]
	}
	switch {
	case !ok:
		return nil
	case whole:
		return []string{s.value}
	}
	var words []string
	for _, word := range strings.FieldsFunc(s.value, func(r rune) bool { return strings.ContainsRune(" \t\n'\"!;&|()=", r) }) {
		if strings.Contains(word, "/") { // others are looked for in PATH
			words = append(words, word)
		}
	}
	return words
}

// configured adds what the configuration of the git directories names inside the root:
// what git runs is said there, and not by a list of ours.
func (s *scanner) configured() {
	seen := map[string]bool{}
	for _, g := range s.gits {
		for _, name := range []string{"config", "config.worktree"} {
			s.readConfigured(filepath.Join(g.path, name), append([]string{g.path, filepath.Dir(g.path)}, s.tops...), seen, 0)
		}
	}
}

// readConfigured reads one configuration and those it includes. tops are where relative
// paths may start from; those of an include start at its file.
func (s *scanner) readConfigured(path string, tops []string, seen map[string]bool, depth int) {
	if seen[path] || depth > 10 {
		return
	}
	seen[path] = true
	settings, err := readConfig(path)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			s.notes = append(s.notes, fmt.Sprintf("cannot read %s (%v): what it makes git run is not protected", path, err))
		}
		return
	}
	for _, set := range settings {
		include := strings.HasPrefix(set.key, "include") && strings.HasSuffix(set.key, ".path")
		from := tops
		if include {
			from = []string{filepath.Dir(path)}
		}
		for _, text := range actsOn(set) {
			for _, at := range s.places(text, from) {
				s.noteConfigured(at)
				if include {
					s.readConfigured(at, tops, seen, depth+1)
				}
			}
		}
	}
}

// places is where a path of a configuration may lead.
func (s *scanner) places(text string, from []string) []string {
	if rest, ok := strings.CutPrefix(text, "~/"); ok {
		return []string{filepath.Join(s.home, rest)}
	}
	if text == "" || strings.ContainsAny(text, "$`\x00") || strings.HasPrefix(text, "%(") {
		return nil
	}
	if filepath.IsAbs(text) {
		return []string{filepath.Clean(text)}
	}
	var out []string
	for _, dir := range from {
		out = append(out, filepath.Join(dir, text))
	}
	return out
}

// noteConfigured adds a path that exists, and lies in the root and is not the root.
func (s *scanner) noteConfigured(path string) {
	if path == s.root || !contains(s.root, path) {
		return
	}
	if slices.ContainsFunc(s.names, func(n found) bool { return n.path == path }) {
		return
	}
	if info, err := os.Lstat(path); err == nil {
		s.add(path, info.Mode(), "")
	}
}
