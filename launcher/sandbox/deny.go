package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// addDenials finds what is less than its root: protected paths, protected names inside
// writable roots, git directories, secrets of the home, hidden paths.
func (f *Facts) addDenials(p *Profile) error {
	for _, path := range p.Hidden {
		f.deny(path, Hide)
	}
	for _, path := range p.Protected {
		f.deny(path, Protect)
	}
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
		found, err := f.search(&f.Roots[i], p)
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
	slices.SortFunc(f.Denials, func(a, b Denial) int {
		if c := byDepth(a.Path, b.Path); c != 0 {
			return c
		}
		return int(b.Kind) - int(a.Kind)
	})
	f.Denials = slices.CompactFunc(f.Denials, func(a, b Denial) bool { return a.Path == b.Path })
	return nil
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

// search looks for names to protect in one root. A root that cannot be written is
// searched for sockets only: being read-only does not keep anyone from connecting.
func (f *Facts) search(root *Root, p *Profile) (findings, error) {
	root.State = slices.ContainsFunc(p.StateDirs, func(dir string) bool {
		target, _, err := resolve(dir)
		return err == nil && target == root.Path
	})
	found, err := root.names(f)
	if err == nil && slices.Contains(found.closed, root.Path) {
		err = &fs.PathError{Op: "open", Path: root.Path, Err: fs.ErrPermission}
	}
	if err != nil {
		return found, &Refusal{Reason: ReasonBind, Detail: "the folder " + root.Path + " cannot be searched for names to protect", Err: err}
	}
	for _, n := range found.names {
		switch {
		case n.mode&fs.ModeSocket != 0:
			f.deny(n.path, Hide)
		case root.Writable:
			f.denyNamed(n.path, n.git)
			f.seen[n.path] = true
		}
	}
	if root.Writable {
		// What is in there cannot be told, and the run could open it: so it is not there.
		for _, path := range found.closed {
			f.deny(path, Hide)
			f.warnf("%s cannot be searched for names to protect (permission denied), and is hidden", path)
		}
		f.Warnings = append(f.Warnings, found.notes...)
	}
	return found, nil
}

// names lists what is protected by name in a root.
func (r *Root) names(f *Facts) (findings, error) {
	home := f.Home
	if len(f.homes) > 0 {
		home = f.homes[0]
	}
	switch {
	case !r.Dir:
		return findings{}, nil
	case r.State:
		return scanState(r.Path, home)
	}
	return scan(r.Path, home)
}

// shown reports whether path lies in a root.
func (f *Facts) shown(path string) bool {
	return slices.ContainsFunc(f.Roots, func(r Root) bool { return contains(r.Path, path) })
}

// denyNamed protects a path for its name. Where the name is a link, whoever made the
// link chose the target, and that may have been an earlier run: a target that would take
// more away than a name may is left as it is.
func (f *Facts) denyNamed(path, git string) {
	target, info, err := resolve(path)
	if err != nil {
		f.deny(path, Protect) // a dangling link, which is watched
		return
	}
	aRoot := func(r Root) bool { return contains(target, r.Path) }
	aSecretFile := strings.HasPrefix(strings.ToLower(filepath.Base(path)), ".env") && info.IsDir()
	if target != path && (aSecretFile || contains(target, f.Dir) || slices.ContainsFunc(f.Roots, aRoot)) {
		f.watch(path)
		f.warnf("%s is a symbolic link to a folder of the run: it is only watched", path)
		return
	}
	f.deny(path, Protect)
	if n := len(f.Denials); n > 0 && target == path && f.Denials[n-1].Path == path {
		f.Denials[n-1].Git = git
	}
}

// watch notes a link, to be compared when the run has ended.
func (f *Facts) watch(link string) bool {
	text, err := os.Readlink(link)
	if err != nil {
		return false
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(link))
	if err != nil || !f.writable(dir) {
		return false
	}
	f.Watches = append(f.Watches, Watch{Path: filepath.Join(dir, filepath.Base(link)), Link: text})
	return true
}

// deny notes a path to take away, at the place it really is. A symlink cannot be a
// mount point: what it leads to is denied, and the link is watched.
func (f *Facts) deny(given string, kind DenialKind) {
	given = filepath.Clean(given)
	if _, err := os.Lstat(given); err != nil {
		return // nothing there to take away
	}
	if f.watch(given) {
		f.warnf("%s is a symbolic link: what it leads to is protected, the link itself is only watched", given)
	}
	target, info, err := resolve(given)
	if err != nil {
		return // a dangling link
	}
	if kind == Protect && info.Mode().IsRegular() && links(info) > 1 && f.writable(target) {
		f.warnf("%s has another name elsewhere (a hard link), through which it can still be written", target)
	}
	f.Denials = append(f.Denials, Denial{Path: target, Kind: kind, Dir: info.IsDir(), ID: idOf(info)})
}
