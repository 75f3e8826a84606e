package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// neverShown are trees of the host that hold sockets of its daemons, other runs'
// files, or the machine itself. A socket that can be seen can be connected to,
// read-only or not.
var neverShown = []string{"/tmp", "/var/tmp", "/run", "/var/run", "/dev", "/proc", "/sys", "/dev/shm"}

// Gather looks at the disk for p. It refuses what must not be shown, and resolves
// what will be, so that later steps see no symlinks.
func Gather(p *Profile) (*Facts, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	f := &Facts{
		Name:    p.Name,
		Home:    innerHome(p.Home),
		Runtime: fmt.Sprintf("%s/%d", innerRuntime, os.Getuid()),
		homes:   homes(p.Home, accountHome),
		seen:    map[string]bool{},
		wanted:  p,
		began:   time.Now(),
	}
	if len(f.homes) == 0 {
		f.warnf("neither HOME nor the accounts of this host say where your home is: it is not kept from being shown")
	}
	if err := f.addRoots(p); err != nil {
		return nil, err
	}
	f.Nested, f.Unix, f.GitDir = p.NestedSandbox, p.AllowUnix, p.GitDir
	if err := f.setDir(p); err != nil {
		return nil, err
	}
	f.addSystem()
	if err := f.addDenials(p); err != nil {
		return nil, err
	}
	if err := f.addGuard(p); err != nil {
		return nil, err
	}
	hidden := func(d Denial) bool { return d.Kind == Hide && contains(d.Path, f.Dir) }
	if slices.ContainsFunc(f.Denials, hidden) {
		return nil, &Refusal{Reason: ReasonDir, Detail: "the run cannot start in " + f.Dir + ": it is to be hidden from it"}
	}
	return f, nil
}

// innerHome takes the user's home where a private tmpfs can stand for it.
func innerHome(home string) string {
	clean := filepath.Clean(home)
	if !filepath.IsAbs(home) || clean == "/" {
		return FallbackHome
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/nix", "/gnu", "/proc", "/sys", "/dev", "/run"} {
		if contains(dir, clean) || contains(clean, dir) {
			return FallbackHome
		}
	}
	if slices.ContainsFunc(neverShown, func(dir string) bool { return contains(clean, dir) }) {
		return FallbackHome
	}
	return clean
}

// addRoots resolves binds and state directories.
func (f *Facts) addRoots(p *Profile) error {
	for _, b := range p.Binds {
		if err := f.addRoot(p, b.Path, p.Mode.Writes() && !b.ReadOnly); err != nil {
			return err
		}
	}
	for _, dir := range p.StateDirs {
		if err := f.addRoot(p, dir, true); err != nil {
			return err
		}
	}
	f.addGitGrants(p)
	slices.SortFunc(f.Roots, func(a, b Root) int { return byDepth(a.Path, b.Path) })
	return nil
}

func (f *Facts) addRoot(p *Profile, given string, writable bool) error {
	target, info, err := resolve(given)
	if err != nil {
		return &Refusal{Reason: ReasonBindGone, Detail: "the folder " + given + " cannot be shown", Err: err}
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return refuseBind(given, "it is neither a folder nor a file")
	}
	if err := f.checkShown(p, given, target); err != nil {
		return err
	}
	f.addLinks(given)
	for i := range f.Roots {
		if f.Roots[i].Path == target {
			// The same folder twice: a state directory stays writable, two binds
			// with different rights are a contradiction that we read as the weaker.
			f.Roots[i].Writable = f.Roots[i].Writable && writable
			if slices.Contains(p.StateDirs, given) {
				f.Roots[i].Writable = true
			}
			return nil
		}
	}
	f.Roots = append(f.Roots, Root{Path: target, Writable: writable, Dir: info.IsDir(), ID: idOf(info)})
	return nil
}

// setDir finds where the command starts: in a folder it sees, for bubblewrap would
// quietly take / otherwise.
func (f *Facts) setDir(p *Profile) error {
	given := p.Dir
	if given == "" {
		given = p.Binds[0].Path
	}
	target, info, err := resolve(given)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a folder")
	}
	if err != nil {
		return &Refusal{Reason: ReasonDir, Detail: "the run cannot start in " + given, Err: err}
	}
	if _, ok := deepest(f.Roots, target); !ok {
		return &Refusal{Reason: ReasonDir, Detail: "the run cannot start in " + given + ": it is in no folder the run sees", Cure: "show it with --bind"}
	}
	f.Dir = target
	f.addLinks(given)
	return nil
}

// checkShown refuses binds that would undo the sandbox.
func (f *Facts) checkShown(p *Profile, given, target string) error {
	if target == "/" {
		return refuseBind(given, "it is the whole host")
	}
	for _, home := range f.homes {
		if contains(target, home) {
			return refuseBind(given, "it holds your whole home; work in a folder of it")
		}
		for _, name := range secrets {
			if secret := filepath.Join(home, name); contains(secret, target) {
				return refuseBind(given, "it would show the secrets in "+secret)
			}
		}
	}
	if p.RunDir != "" {
		dir := p.RunDir
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			dir = resolved
		}
		if contains(target, dir) || contains(dir, target) {
			return refuseBind(given, "it would show the appliance's run directory "+dir)
		}
	}
	for _, dir := range neverShown {
		if contains(target, dir) {
			return refuseBind(given, "it would show "+dir+" of the host, whose sockets lead out of any sandbox")
		}
	}
	for _, dir := range []string{"/usr", "/etc", ownDir} {
		if contains(target, dir) {
			return refuseBind(given, "it would replace "+dir+" of the sandbox")
		}
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run/user", ownDir} {
		if contains(dir, target) {
			return refuseBind(given, "nothing of "+dir+" can be shown")
		}
	}
	return nil
}

func refuseBind(given, why string) error {
	return &Refusal{Reason: ReasonBind, Detail: "the folder " + given + " cannot be shown: " + why, Cure: "name another with --bind"}
}

// addLinks notes every symlink on the way to given, so that the path works inside
// as it is spelled outside.
func (f *Facts) addLinks(given string) {
	at := "/"
	rest := strings.Split(strings.Trim(filepath.Clean(given), "/"), "/")
	// The kernel gives up after 40 links, and so do we: the path did resolve.
	for links := 0; len(rest) > 0 && links <= 40; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		text, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		links++
		link := Link{Path: next, Target: text}
		if !slices.Contains(f.Links, link) {
			f.Links = append(f.Links, link)
		}
		if filepath.IsAbs(text) {
			at = "/"
		}
		target := filepath.Join(at, text)
		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
		at = "/"
	}
}

// writable reports whether the deepest root that holds path is writable.
func (f *Facts) writable(path string) bool {
	writable := false
	for _, r := range f.Roots { // parents first
		if contains(r.Path, path) {
			writable = r.Writable
		}
	}
	return writable
}

func (f *Facts) warnf(format string, args ...any) {
	f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
}

func resolve(path string) (string, fs.FileInfo, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", nil, err
	}
	info, err := os.Lstat(target)
	if err != nil {
		return "", nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return "", nil, errors.New("it changed while it was looked at")
	}
	return target, info, nil
}

func idOf(info fs.FileInfo) FileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return FileID{}
	}
	return FileID{Dev: uint64(st.Dev), Ino: st.Ino} //nolint:unconvert // Dev is signed on darwin
}

func links(info fs.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return uint64(st.Nlink) //nolint:unconvert // its width differs by platform
}

// byDepth orders parents before children, and paths of one depth by name.
func byDepth(a, b string) int {
	if d := depth(a) - depth(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

func depth(path string) int {
	if path == "/" {
		return 0
	}
	return strings.Count(path, "/")
}
