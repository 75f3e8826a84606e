package sandbox

import (
	"iter"
	"path"
	"slices"
)

// Plan turns facts into the ordered mounts. It looks at nothing but f.
//
// bubblewrap applies mounts in order, and each hides what was at and below its
// target. So the rule is: parents before children, everywhere. Then the deepest
// mount that holds a path decides about it, and no later mount can re-open what an
// earlier one closed, provided that nothing writable is mounted at or below a
// denial: see granted.
//
// A mount is tied to a directory entry, not to a path: renaming a parent takes the
// mount along and leaves the name free. So every directory between a writable root
// and something read-only inside it is mounted onto itself, which makes it EBUSY.
func Plan(f *Facts) []Mount {
	if f.Terminal {
		return planTerminal(f)
	}
	plan := base(f)
	plan = append(plan, f.symlinks()...)
	plan = append(plan, inner(f)...)
	return append(plan, seal()...)
}

// base is the system and the private trees, which roots are laid over.
func base(f *Facts) []Mount {
	var plan []Mount
	add := func(m Mount) { plan = append(plan, m) }
	add(Mount{Op: OpTmpfs, Target: "/etc"})
	add(Mount{Op: OpTmpfs, Target: "/run"})
	add(Mount{Op: OpDir, Target: "/var", Perms: "0755"})
	for _, s := range f.System {
		if s.Link != "" {
			add(Mount{Op: OpSymlink, Source: s.Link, Target: s.Path})
		} else {
			add(Mount{Op: OpRoBind, Source: s.Path, Target: s.Path})
		}
	}
	for _, d := range f.Etc {
		add(Mount{Op: OpFile, Source: d.From, Data: d.Content, Target: d.Path, Perms: "0444"})
	}
	if f.GitFile != "" {
		add(Mount{Op: OpSymlink, Source: InnerGit, Target: "/etc/gitconfig"})
	}
	add(Mount{Op: OpSymlink, Source: "/proc/self/mounts", Target: "/etc/mtab"})
	add(Mount{Op: OpProc, Target: "/proc"})
	for _, path := range f.ProcCovers {
		add(Mount{Op: OpRoBind, Source: path, Target: path})
	}
	add(Mount{Op: OpDev, Target: "/dev"})
	add(Mount{Op: OpTmpfs, Target: "/tmp", Perms: "1777"})
	// Relative, because bubblewrap would follow an absolute link out of the new root
	// when it makes the mount points below it.
	//
	// A root below one of them stays where it is: what is said of its path would be said of
	// another place else.
	for _, tree := range []Mount{
		{Op: OpSymlink, Source: "../tmp", Target: "/var/tmp", Perms: "1777"},
		{Op: OpSymlink, Source: "../run", Target: "/var/run", Perms: "0755"},
	} {
		if f.holdsRoot(tree.Target) {
			add(Mount{Op: OpTmpfs, Target: tree.Target, Perms: tree.Perms})
		} else {
			add(Mount{Op: OpSymlink, Source: tree.Source, Target: tree.Target})
		}
	}
	add(Mount{Op: OpTmpfs, Target: f.Runtime, Perms: "0700"})
	add(Mount{Op: OpTmpfs, Target: f.Home, Perms: "0700"})
	add(Mount{Op: OpDir, Target: InnerEmpty, Perms: "0555"})
	add(Mount{Op: OpRoBind, Source: f.Exe, Target: InnerExe})
	if f.GitFile != "" {
		add(Mount{Op: OpRoBind, Source: f.GitFile, Target: InnerGit})
	}
	return plan
}

// holdsRoot reports whether a root lies in a tree.
func (f *Facts) holdsRoot(tree string) bool {
	return slices.ContainsFunc(f.Roots, func(r Root) bool { return contains(tree, r.Path) })
}

// symlinks makes the host's links that lie in no tree the run sees anyway.
func (f *Facts) symlinks() []Mount {
	var plan []Mount
	for _, l := range f.Links {
		inRoot := slices.ContainsFunc(f.Roots, func(r Root) bool { return contains(r.Path, l.Path) })
		inSystem := slices.ContainsFunc(f.System, func(s SystemPath) bool { return contains(s.Path, l.Path) })
		ours := l.Path == "/var/tmp" || l.Path == "/var/run"
		holds := contains(l.Path, f.Home) || f.holdsRoot(l.Path)
		if !inRoot && !inSystem && !ours && !holds {
			plan = append(plan, Mount{Op: OpSymlink, Source: l.Target, Target: l.Path})
		}
	}
	return plan
}

// inner is the roots, the pins and the denials, in one order by depth.
func inner(f *Facts) []Mount {
	roots := granted(f)
	denials := effective(f, roots)

	var plan []Mount
	for _, r := range roots {
		op := OpRoBind
		if r.Writable {
			op = OpBind
		}
		plan = append(plan, Mount{Op: op, Source: r.Path, Target: r.Path, role: roleRoot})
	}
	for _, p := range pins(roots, denials) {
		plan = append(plan, Mount{Op: OpBind, Source: p, Target: p, role: rolePin})
	}
	for _, d := range denials {
		plan = append(plan, guard(d)...)
	}
	// Stable: the two operations that hide a folder keep their order.
	slices.SortStableFunc(plan, func(a, b Mount) int { return byDepth(a.Target, b.Target) })
	return plan
}

// granted is the roots as the denials leave them: a denial beats a grant. What lies
// at or below something hidden is not there, at or below something protected it is
// read-only.
func granted(f *Facts) []Root {
	denied := strongest(f.Denials)
	var roots []Root
	for _, r := range f.Roots {
		hidden := false
		for at := range above(r.Path) {
			if kind, ok := denied[at]; ok {
				hidden = hidden || kind == Hide
				r.Writable = false
			}
		}
		if !hidden {
			roots = append(roots, r)
		}
	}
	return roots
}

// strongest is what is denied at each path itself.
func strongest(denials []Denial) map[string]DenialKind {
	out := make(map[string]DenialKind, len(denials))
	for _, d := range denials {
		out[d.Path] = max(d.Kind, out[d.Path])
	}
	return out
}

// above is a path and every directory that it lies in, the nearest first. Asking a table
// for each of them is what keeps thousands of denials from being compared in pairs.
func above(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(p) && p != "/" {
			p = path.Dir(p)
		}
	}
}

// effective drops the denials that change nothing: those outside what the run sees,
// those below a denial at least as strong, and protections where nothing may be
// written anyway.
func effective(f *Facts, roots []Root) []Denial {
	var kept []Denial
	kinds := make(map[string]DenialKind, len(f.Denials))
	table := tableOf(roots)
	for _, d := range f.Denials { // parents first, and the stronger first at one path
		covered := false
		for at := range above(d.Path) {
			kind, ok := kinds[at]
			if covered = ok && (kind >= d.Kind || at == d.Path); covered {
				break
			}
		}
		root, ok := table.deepest(d.Path)
		visible := ok || slices.ContainsFunc(f.System, func(s SystemPath) bool { return s.Link == "" && contains(s.Path, d.Path) })
		if covered || !visible || d.Kind == Protect && (!ok || !root.Writable) {
			continue
		}
		kinds[d.Path] = d.Kind
		kept = append(kept, d)
	}
	return kept
}

// rootTable finds roots by their paths.
type rootTable map[string]Root

func tableOf(roots []Root) rootTable {
	t := make(rootTable, len(roots))
	for _, r := range roots {
		t[r.Path] = r
	}
	return t
}

// deepest is the root that decides about p.
func (t rootTable) deepest(p string) (Root, bool) {
	for at := range above(p) {
		if r, ok := t[at]; ok {
			return r, true
		}
	}
	return Root{}, false
}

// deepest is the same for one question.
func deepest(roots []Root, p string) (best Root, ok bool) {
	for _, r := range roots {
		if contains(r.Path, p) && (!ok || len(r.Path) > len(best.Path)) {
			best, ok = r, true
		}
	}
	return best, ok
}

// pins are the directories between a writable root and what is mounted inside it.
// One that is a root itself is a mount point already, and one below a denial cannot
// be written.
func pins(roots []Root, denials []Denial) []string {
	table, denied := tableOf(roots), strongest(denials)
	seen := map[string]bool{}
	var out []string
	pin := func(target string) {
		for dir := path.Dir(target); dir != "/"; dir = path.Dir(dir) {
			root, ok := table.deepest(dir)
			if !ok || seen[dir] {
				return // outside of every root, or done with all that is above
			}
			seen[dir] = true
			if root.Path == dir || !root.Writable {
				continue
			}
			covered := false
			for at := range above(dir) {
				if _, covered = denied[at]; covered {
					break
				}
			}
			if !covered {
				out = append(out, dir)
			}
		}
	}
	for _, r := range roots {
		pin(r.Path)
	}
	for _, d := range denials {
		pin(d.Path)
	}
	return out
}

// guard is what a denial mounts.
func guard(d Denial) []Mount {
	switch {
	case d.Kind == Protect:
		return []Mount{{Op: OpRoBind, Source: d.Path, Target: d.Path, role: roleGuard}}
	case d.Dir:
		// Read-only as well: writes into a hidden folder must fail, not vanish.
		return []Mount{
			{Op: OpTmpfs, Target: d.Path, Perms: "0000", role: roleGuard},
			{Op: OpRemountRO, Target: d.Path, role: roleGuard},
		}
	default:
		// The device cannot be opened on a mount of a user namespace: EACCES.
		return []Mount{{Op: OpRoBind, Source: "/dev/null", Target: d.Path, role: roleGuard}}
	}
}

// seal makes the private trees that hold nothing of the run's own read-only, when
// every mount point in them has been made.
func seal() []Mount {
	var plan []Mount
	for _, dir := range []string{"/etc", "/run", "/"} {
		plan = append(plan, Mount{Op: OpRemountRO, Target: dir, role: roleSeal})
	}
	return plan
}
