package seatbelt

import (
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// dataVolume is where the firmlinked directories really live.
const dataVolume = "/System/Volumes/Data"

var firmlinked = []string{"/Users/", "/private/", "/Applications/", "/Library/", "/opt/", "/usr/local/"}

// spellings returns every form in which the kernel may be asked about path: as
// written, resolved, in both normal forms, and below the data volume. Sorted,
// each once.
func (p *Policy) spellings(path string) []string {
	path = clean(path)
	forms := []string{path}
	if target := p.resolved(path); checkPath(target) == nil {
		forms = append(forms, target)
	}
	var out []string
	for _, f := range forms {
		for _, n := range []string{f, norm.NFC.String(f), norm.NFD.String(f)} {
			out = append(out, n)
			for _, dir := range firmlinked {
				if strings.HasPrefix(n, dir) {
					out = append(out, dataVolume+n)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// resolved follows the symlinks of the longest part of path that exists: what is
// yet to be created below a symlinked directory is matched below its target.
func (p *Policy) resolved(path string) string {
	rest := ""
	for at := path; p.Resolve != nil && at != ""; {
		if target, err := p.Resolve(at); err == nil {
			return clean(target + rest)
		}
		i := strings.LastIndexByte(at, '/')
		at, rest = at[:i], at[i:]+rest
	}
	return path
}

func clean(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// quote writes a string literal: only the quote and the backslash are special.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
