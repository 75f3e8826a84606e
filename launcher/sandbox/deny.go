package sandbox

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// addDenials finds what is less than its root: protected paths, protected names inside
// writable roots, git directories, secrets of the home, hidden paths.
func (f *Facts) addDenials(p *Profile) error {
	globs, err := parseGlobs(p.HiddenGlobs)
	if err != nil {
		return &Refusal{Reason: ReasonGlob, Detail: "what is to be hidden cannot be told", Err: err}
	}
	if seesHost && globs.absolute() {
		return &Refusal{Reason: ReasonGlob, Detail: "an absolute pattern cannot be hidden here, where a run sees more than its folders", Cure: "name the paths, or give a pattern that is relative to the folders of the run"}
	}
	f.patterns, f.globs = p.HiddenGlobs, globs
	for _, path := range p.Hidden {
		f.deny(path, Hide)
	}
	for _, path := range p.Protected {
		f.deny(path, Protect)
	}
	f.asked(0)
	for _, home := range f.homes {
		for _, name := range secrets {
			if path := filepath.Join(home, name); f.shown(path) {
				f.deny(path, Hide)
			}
		}
	}
	var (
		gits       []gitDir
		referenced = map[string]bool{}
	)
	for i := range f.Roots {
		f.protectedRoot(&f.Roots[i])
		found, err := f.search(&f.Roots[i], p, globs)
		if err != nil {
			return err
		}
		if f.Roots[i].Writable {
			gits = append(gits, found.gits...)
		}
		for dir := range found.referenced {
			referenced[dir] = true
		}
	}
	f.addGitDirs(gits, referenced)
	if err := f.addAliases(); err != nil {
		return err
	}
	f.sortDenials()
	if n := len(f.Denials); n > maxDenials {
		return &Refusal{
			Reason: ReasonTooMany,
			Detail: fmt.Sprintf("%d files and folders are to be protected or hidden, at most %d can be", n, maxDenials),
			Cure:   "bind smaller folders, or hide folders instead of the files in them",
		}
	}
	return nil
}

// maxDenials bounds the mounts of one run: the kernel takes 100,000 in a namespace, the
// pins and two copies on the way included.
const maxDenials = 20_000

// seesHost says that a run sees what is in none of its folders: there no walk goes.
const seesHost = runtime.GOOS == "darwin"

// asked marks the denials from a number on as this run's own wish.
func (f *Facts) asked(from int) {
	for i := from; i < len(f.Denials); i++ {
		f.Denials[i].asked = true
	}
}

// compact makes one of several denials of a path; they are sorted, the stronger first.
func (f *Facts) compact() {
	out := f.Denials[:0]
	for _, d := range f.Denials {
		last := len(out) - 1
		if last < 0 || out[last].Path != d.Path {
			out = append(out, d)
			continue
		}
		if d.asked && (!out[last].asked || d.pattern == "") {
			out[last].asked, out[last].pattern = true, d.pattern
		}
	}
	f.Denials = out
}

// protectedRoot makes a root read-only that is itself, or lies in, what is protected
// by name in every other root.
func (f *Facts) protectedRoot(root *Root) {
	if !root.Writable || root.State {
		return
	}
	for at := root.Path; at != "/"; at = filepath.Dir(at) {
		name := filepath.Base(at)
		dir := root.Dir || at != root.Path
		inClaude := strings.EqualFold(filepath.Base(filepath.Dir(at)), ".claude") && protectedClaude[strings.ToLower(name)]
		if !inClaude && !isProtectedName(name, dir) && (dir || !strings.EqualFold(name, ".git")) {
			continue
		}
		f.warnf("%s is read-only: tools outside the sandbox act on what is in %s", root.Path, name)
		f.deny(root.Path, Protect)
		return
	}
}

// sortDenials puts parents before children, and the stronger first at one path, of which
// it leaves one.
func (f *Facts) sortDenials() {
	slices.SortFunc(f.Denials, func(a, b Denial) int {
		if c := byDepth(a.Path, b.Path); c != 0 {
			return c
		}
		return int(b.Kind) - int(a.Kind)
	})
	f.compact()
}

// search looks for names to protect in one root. A root that cannot be written is
// searched for sockets and patterns only: being read-only does not keep anyone from
// connecting or reading.
func (f *Facts) search(root *Root, p *Profile, globs *globSet) (findings, error) {
	root.State = slices.ContainsFunc(p.StateDirs, func(dir string) bool {
		target, _, err := resolve(dir)
		return err == nil && target == root.Path
	})
	found, err := root.names(f, globs)
	if err == nil && slices.Contains(found.closed, root.Path) {
		err = &fs.PathError{Op: "open", Path: root.Path, Err: fs.ErrPermission}
	}
	if err != nil {
		return found, &Refusal{Reason: ReasonBind, Detail: "the folder " + root.Path + " cannot be searched for names to protect", Err: err}
	}
	for _, n := range append(root.itself(globs), found.globbed...) {
		f.hideGlobbed(n)
	}
	named := len(f.Denials)
	for _, n := range found.names {
		switch {
		case n.mode&fs.ModeSocket != 0:
			f.denyEntry(n, Hide)
		case root.Writable:
			f.denyNamed(n)
			f.seen[n.path] = true
		}
	}
	if root.State {
		f.asked(named) // where it is a folder like any other, these names are nothing special
	}
	// What is in there cannot be told, and the run could open it: so it is not there.
	if root.Writable {
		for _, path := range found.closed {
			f.deny(path, Hide)
			f.warnf("%s cannot be searched for names to protect (permission denied), and is hidden", path)
		}
		f.Warnings = append(f.Warnings, found.notes...)
	}
	for _, path := range found.deep {
		f.deny(path, Hide)
		f.warnf("%s lies too deep to be searched, and is hidden", path)
	}
	return found, nil
}

// names finds the protected names in a root the run may write, down to scanDepth, and
// git directories, sockets and what the patterns match at any depth; in a runner's state
// directory, what stays protected there. What it cannot read it reports as an error: a name
// that may be there and is not protected would be a quietly weaker run. Folders of other
// users are left out: the run cannot read them either, and cannot change that.
func (r *Root) names(f *Facts, globs *globSet) (findings, error) {
	home := f.Home
	if len(f.homes) > 0 {
		home = f.homes[0]
	}
	if r.store || !r.Dir {
		return findings{}, nil
	}
	w := newWalk(r.Path, home, f.GitDir, globs)
	w.cache = f.walked[r.Path]
	found, err := w.run(place{path: r.Path, depth: 1, names: !r.State, state: r.State})
	if f.walked == nil {
		f.walked = map[string]*walkCache{}
	}
	f.walked[r.Path] = w.after
	return found, err
}

// itself is what of a root's own path globs match: that it was bound does not show it.
func (r *Root) itself(globs *globSet) (out []found) {
	if globs == nil {
		return nil
	}
	base := filepath.Dir(r.Path) // what a pattern that is relative may begin with, once
	for at := r.Path; at != "/"; at = filepath.Dir(at) {
		if pattern := globs.match(base, filepath.Dir(at), []byte(filepath.Base(at))); pattern != "" {
			out = append(out, found{path: at, mode: fs.ModeDir, pattern: pattern})
		}
		base = ""
	}
	return out
}

// shown reports whether path lies in a root.
func (f *Facts) shown(path string) bool {
	return slices.ContainsFunc(f.Roots, func(r Root) bool { return contains(r.Path, path) })
}
