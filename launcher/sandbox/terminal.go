package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Terminal is a person's shell with a fixed profile (SPEC 52): the host is there to be
// read, the home and the folder the shell starts in to be written, the network is open.
// Five of the home's secrets are not readable. It keeps mistakes small, and is not made
// to hold an agent: see Profile for that.
type Terminal struct {
	Home string // $HOME of the person
	Dir  string // where the shell starts

	// RunDir is the appliance's run directory, if there is one: it is not shown, for a
	// terminal has no door to it (SPEC 53).
	RunDir string

	// AllowUnix lets it make Unix sockets. Those of the host's daemons are hidden with
	// /run and /tmp, but not those in the home, nor those without a file: with the host's
	// network it has the host's names for them, too.
	AllowUnix bool
}

// terminalSecrets are what of a home a terminal does not read: exactly these (SPEC 52).
var terminalSecrets = []string{".ssh", ".aws", ".gnupg", ".config/gh", "Library/Keychains"}

// neverWritable are folders that are the system itself, or hold what is not a file.
var neverWritable = []string{"/", "/usr", "/etc", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var", "/nix", "/gnu", "/System", "/Library"}

// GatherTerminal looks at the disk for t.
func GatherTerminal(t *Terminal) (*Facts, error) {
	f := &Facts{
		Runtime:  fmt.Sprintf("%s/%d", innerRuntime, os.Getuid()),
		Terminal: true,
		Unix:     t.AllowUnix,
		homes:    homes(t.Home, accountHome),
		seen:     map[string]bool{},
		wanted:   &Profile{Home: t.Home, RunDir: t.RunDir},
		System:   []SystemPath{{Path: "/"}},
	}
	var err error
	if f.Home, err = f.addTerminalRoot("home", t.Home); err != nil {
		return nil, err
	}
	if f.Dir, err = f.addTerminalRoot("folder", t.Dir); err != nil {
		return nil, err
	}
	for _, dir := range privateTrees {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			f.Private = append(f.Private, dir)
		}
	}
	f.keepNames()
	if os.Geteuid() == 0 {
		f.addProcCovers("/proc")
	}
	for _, home := range f.homes {
		for _, name := range terminalSecrets {
			f.deny(filepath.Join(home, name), Hide)
		}
	}
	if t.RunDir != "" && !f.covered(t.RunDir) {
		f.deny(t.RunDir, Hide)
	}
	f.denyOtherNames()
	f.sortDenials()
	for _, d := range f.Denials {
		if contains(d.Path, f.Dir) {
			return nil, &Refusal{Reason: ReasonDir, Detail: "the terminal cannot start in " + f.Dir + ": it is hidden from it", Cure: "start it in another folder"}
		}
	}
	return f, nil
}

// denyOtherNames hides what is hidden also where else it is mounted: a terminal sees all
// of the host. Of a name that leads to something else by now, nothing is taken away.
func (f *Facts) denyOtherNames() {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return // a system without binds
	}
	mounts := readMounts(string(table))
	for _, d := range slices.Clone(f.Denials) {
		names, parts := otherNames(mounts, d.Path)
		for i, other := range append(names, parts...) {
			if info, err := os.Lstat(other); err == nil && !f.covered(other) && (i >= len(names) || idOf(info) == d.ID) {
				f.deny(other, Hide)
			}
		}
	}
}

// addTerminalRoot adds a folder that a terminal writes, and returns where it really is.
func (f *Facts) addTerminalRoot(what, given string) (string, error) {
	if !filepath.IsAbs(given) {
		return "", &Refusal{Reason: ReasonBind, Detail: fmt.Sprintf("the terminal's %s %q is not an absolute path", what, given), Cure: "set HOME"}
	}
	target, info, err := resolve(given)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a folder")
	}
	if err != nil {
		return "", &Refusal{Reason: ReasonBindGone, Detail: fmt.Sprintf("the terminal's %s cannot be shown", what), Err: err}
	}
	refused := slices.Contains(neverWritable, target)
	for _, dir := range neverShown {
		// Of /tmp and /run a terminal has its own; a folder in the host's may be the one
		// to work in, the whole would bring back every socket.
		device := slices.Contains([]string{"/dev", "/proc", "/sys"}, dir)
		refused = refused || contains(target, dir) || device && contains(dir, target)
	}
	if refused || contains(ownDir, target) {
		return "", &Refusal{
			Reason: ReasonBind, Detail: fmt.Sprintf("the terminal's %s %s would be writable, and holds the system", what, target),
			Cure: "start it in a folder of yours",
		}
	}
	if _, ok := deepest(f.Roots, target); !ok {
		f.Roots = append(f.Roots, Root{Path: target, Writable: true, Dir: true, ID: idOf(info)})
		slices.SortFunc(f.Roots, func(a, b Root) int { return byDepth(a.Path, b.Path) })
	}
	return target, nil
}

// privateTrees are what a terminal has its own of: what of the host lies there leads to
// the host's daemons.
var privateTrees = []string{"/run", "/tmp", "/var/tmp"}

// covered reports whether a path of the host lies where a terminal sees a tree of its own.
func (f *Facts) covered(p string) bool {
	if _, ok := deepest(f.Roots, p); ok {
		return false
	}
	return slices.ContainsFunc(f.Private, func(dir string) bool { return contains(dir, p) })
}

// keepNames keeps the host's way of resolving names, which is a file that often lies in
// /run.
func (f *Facts) keepNames() {
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err == nil && f.covered(target) {
		f.Etc = append(f.Etc, Data{Path: target, From: target})
	}
}

// terminalBase is the host as a terminal sees it, over which its folders are laid.
func terminalBase(f *Facts) []Mount {
	plan := []Mount{{Op: OpRoBind, Source: "/", Target: "/"}}
	add := func(m Mount) { plan = append(plan, m) }
	add(Mount{Op: OpProc, Target: "/proc"})
	for _, path := range f.ProcCovers {
		add(Mount{Op: OpRoBind, Source: path, Target: path})
	}
	add(Mount{Op: OpDev, Target: "/dev"})
	for _, dir := range f.Private {
		add(Mount{Op: OpTmpfs, Target: dir, Perms: "1777"})
	}
	for _, d := range f.Etc {
		add(Mount{Op: OpFile, Source: d.From, Data: d.Content, Target: d.Path, Perms: "0444"})
	}
	add(Mount{Op: OpTmpfs, Target: f.Runtime, Perms: "0700"})
	add(Mount{Op: OpRoBind, Source: f.Exe, Target: InnerExe})
	return plan
}

// planTerminal is Plan for a terminal, by the same rule: parents before children.
func planTerminal(f *Facts) []Mount {
	return append(append(terminalBase(f), inner(f)...), Mount{Op: OpRemountRO, Target: "/run", role: roleSeal})
}
