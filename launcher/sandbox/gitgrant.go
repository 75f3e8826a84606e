package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A linked worktree and a submodule have a .git file, which leads to a git directory
// elsewhere. Without it git does nothing there, so it is shown, as far as a commit needs.
//
// The file may have been planted, by an earlier run or in an archive. So it counts for
// nothing alone: the git directory must say by itself that it belongs to the folder
// (gitdir of a worktree, core.worktree of a submodule), and that is where no run may
// write. Nothing on the way below the git directory may be a link.

// commonWritten are the folders of a repository that a commit in one of its linked
// worktrees writes. Everything else of it, config, hooks and packed-refs among them, is
// only read there.
var commonWritten = []string{"objects", "refs", "logs", "reftable", "lfs"}

// addGitGrants shows the git directories of the roots that have a .git file.
func (f *Facts) addGitGrants(p *Profile) {
	bound := slices.Clone(f.Roots)
	for _, root := range bound {
		dotGit := filepath.Join(root.Path, ".git")
		info, err := os.Lstat(dotGit)
		if !root.Dir || err != nil || !info.Mode().IsRegular() {
			continue
		}
		dir, ok := gitFileTarget(dotGit)
		inBound := func(r Root) bool { return contains(r.Path, dir) }
		if !ok || slices.ContainsFunc(bound, inBound) || !isGitDir(dir) {
			continue
		}
		switch {
		case worktreeOf(dir) == dotGit:
			f.grantCommon(p, root, dir)
		case submoduleOf(dir) == root.Path:
			f.grant(p, dir, root.Writable)
		default:
			f.warnf("git does not work in %s: its git directory %s does not say that it belongs there; show it with --bind if it does", root.Path, dir)
			continue
		}
		f.addLinks(gitFileText(dotGit))
	}
}

// grantCommon shows what a linked worktree needs of its repository.
func (f *Facts) grantCommon(p *Profile, root Root, dir string) {
	common := filepath.Dir(filepath.Dir(dir))
	text, err := readSmall(filepath.Join(dir, "commondir"))
	if err != nil || strings.TrimSpace(text) != "../.." || filepath.Base(filepath.Dir(dir)) != "worktrees" || !isGitDir(common) {
		f.warnf("git does not work in %s: %s is not where git puts a linked worktree's part", root.Path, dir)
		return
	}
	if !f.grant(p, common, false) || !root.Writable {
		return
	}
	f.grant(p, dir, true)
	for _, name := range commonWritten {
		path := filepath.Join(common, name)
		if name == "logs" {
			_ = os.Mkdir(path, 0o755) //nolint:gosec // as git does with the first commit that is logged
		}
		info, err := os.Lstat(path)
		switch {
		case err != nil:
		case !info.IsDir():
			f.warnf("git does not work in %s: %s is not a folder of its own", root.Path, path)
		default:
			f.grant(p, path, true)
			for i := range f.Roots {
				f.Roots[i].store = f.Roots[i].store || f.Roots[i].Path == path
			}
		}
	}
}

// grant shows a part of a git directory, unless it must not be shown.
func (f *Facts) grant(p *Profile, dir string, writable bool) bool {
	for i, r := range f.Roots {
		if r.Path == dir {
			// It was shown before, for another worktree of the same repository.
			f.Roots[i].Writable = r.Writable || writable
			return true
		}
	}
	if err := f.addRoot(p, dir, writable); err != nil {
		f.warnf("git does not work in a folder of this run: %v", err)
		return false
	}
	return true
}

// worktreeOf is the .git file that a worktree's part of a git directory belongs to.
func worktreeOf(dir string) string {
	text, err := readSmall(filepath.Join(dir, "gitdir"))
	if err != nil {
		return ""
	}
	return realFile(dir, strings.TrimRight(text, "\r\n"))
}

// submoduleOf is the folder that a git directory says is its worktree.
func submoduleOf(dir string) string {
	settings, err := readConfig(filepath.Join(dir, "config"))
	if err != nil {
		return ""
	}
	for _, s := range settings {
		if s.key == "core.worktree" {
			return realFile(dir, s.value)
		}
	}
	return ""
}

// realFile is a path of a file in dir, without links; the last part is not followed.
func realFile(dir, text string) string {
	if text == "" {
		return ""
	}
	if !filepath.IsAbs(text) {
		text = filepath.Join(dir, text)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(text))
	if err != nil {
		return ""
	}
	return filepath.Join(parent, filepath.Base(text))
}

// gitFileText is the path in a .git file as it is written, made absolute: inside it must
// lead to the same place.
func gitFileText(path string) string {
	text, err := readSmall(path)
	if err != nil {
		return path
	}
	to := strings.TrimSpace(strings.TrimPrefix(text, "gitdir:"))
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	return to
}
