package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// denyNamed protects a path for its name. Where the name is a link, whoever made the
// link chose the target, and that may have been an earlier run: a target that would take
// more away than a name may is left as it is.
func (f *Facts) denyNamed(n found) {
	if n.mode&fs.ModeSymlink == 0 {
		f.denyEntry(n, Protect)
		return
	}
	target, info, err := resolve(n.path)
	if err != nil {
		f.deny(n.path, Protect) // a dangling link, which is watched
		return
	}
	aRoot := func(r Root) bool { return contains(target, r.Path) }
	aSecretFile := strings.HasPrefix(strings.ToLower(filepath.Base(n.path)), ".env") && info.IsDir()
	if target != n.path && (aSecretFile || contains(target, f.Dir) || slices.ContainsFunc(f.Roots, aRoot)) {
		f.watch(n.path)
		f.warnf("%s is a symbolic link to a folder of the run: it is only watched", n.path)
		return
	}
	f.deny(n.path, Protect)
	if last := len(f.Denials) - 1; last >= 0 && target == n.path && f.Denials[last].Path == n.path {
		f.Denials[last].Git = n.git
	}
}

// denyEntry takes away a name that the walk found: it led there through no links.
func (f *Facts) denyEntry(n found, kind DenialKind) {
	info, err := os.Lstat(n.path)
	if err != nil {
		return // it went away
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		f.deny(n.path, kind)
		return
	}
	f.addDenial(Denial{Path: n.path, Kind: kind, Git: n.git, asked: n.pattern != "", pattern: n.pattern}, info)
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
	given = physical(given)
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
	f.addDenial(Denial{Path: target, Kind: kind}, info)
}

// physical is a clean path without "..", as the kernel goes it: "link/.." is where the
// link leads to, one up. Cleaning the text alone would miss the file, and nothing would
// be taken away.
func physical(given string) string {
	if !slices.Contains(strings.Split(given, "/"), "..") {
		return filepath.Clean(given)
	}
	dir, name := filepath.Split(strings.TrimRight(given, "/"))
	if name == ".." || name == "." {
		dir, name = given, ""
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Join(target, name)
	}
	return filepath.Clean(given)
}

// addDenial notes a denial of what is there. A file that has further names is looked for
// under them later: see addAliases.
func (f *Facts) addDenial(d Denial, info fs.FileInfo) {
	d.Dir, d.ID = info.IsDir(), idOf(info)
	if info.Mode().IsRegular() && links(info) > 1 {
		f.aliased = append(f.aliased, d)
	}
	f.Denials = append(f.Denials, d)
}
