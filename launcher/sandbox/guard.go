package sandbox

import (
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"postern/launcher/nameguard"
)

// guardsNames says that this system's sandbox has names guarded by a broker, and
// forbidsNames that it can forbid names that do not exist yet at all.
const (
	guardsNames  = runtime.GOOS == "linux"
	forbidsNames = guardsNames || runtime.GOOS == "darwin"
)

// hadNot is what comes before the reason, in a refusal for want of a guard.
const hadNot = "and that cannot be had here: "

// nameGuard is what a run needs to have names guarded (SPEC decision 5).
type nameGuard struct {
	rules *nameguard.Rules
	texts string // of the run's own patterns, for refusals

	free    []string // trees in which the run acts by itself
	private []string // trees of its own that hold folders of the host
	canary  string   // a folder in which names are guarded

	trapRemove bool // names may not be removed either
}

// addGuard compiles the rules of a run that has some. A name that is not there yet needs
// no placeholder on the host then: it is a rule.
func (f *Facts) addGuard(p *Profile) error {
	roots := granted(f)
	if !guardsNames || len(p.NameGlobs) == 0 || !slices.ContainsFunc(roots, func(r Root) bool { return r.Writable }) {
		return nil // nothing to keep, or nothing to keep it from
	}
	g := &nameGuard{texts: Texts(p.NameGlobs)}
	refuse := func(detail, cure string, err error) error {
		return &Refusal{Reason: ReasonNameGlobs, Detail: "the run needs files to be unwritable by name: " + g.texts + ", and " + detail, Cure: cure, Err: err}
	}
	if p.NestedSandbox {
		return refuse("a sandbox of its own could show it the same files elsewhere", "do without --nested-sandbox, or without the patterns", nil)
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return refuse("what is mounted where cannot be told", "", err)
	}
	if g.rules, err = nameguard.Compile(f.nameRules(p, readMounts(string(mountinfo)))); err != nil {
		return &Refusal{Reason: ReasonGlob, Detail: "what may not be written by name cannot be told", Err: err}
	}
	i := slices.IndexFunc(roots, func(r Root) bool { return r.Writable && r.Dir })
	if i < 0 {
		return refuse("it has no folder that it may write, only files", "show the folders that the files are in", nil)
	}
	g.canary = roots[i].Path
	g.free = []string{"/dev", "/proc"}
	trees := []string{"/tmp", f.Runtime, f.Home}
	for _, tree := range []string{"/var/tmp", "/var/run"} {
		if f.holdsRoot(tree) {
			trees = append(trees, tree) // else it is a link
		}
	}
	for _, tree := range trees {
		// What the run may do in a tree it may do at every place below.
		switch {
		case slices.ContainsFunc(f.Roots, func(r Root) bool { return r.Path == tree }):
			// There is the host's folder instead.
		case f.holdsRoot(tree):
			g.private = append(g.private, tree)
		default:
			g.free = append(g.free, tree)
		}
	}
	g.trapRemove = p.NameRemove
	freed := f.nameFree(p)
	f.Denials = slices.DeleteFunc(f.Denials, func(d Denial) bool { return d.ID == FileID{} && !inside(freed, d.Path) })
	f.guard = g
	return nil
}

// NoHooks reports whether rules about names keep the run from making hooks anywhere: on
// macOS the profile always does.
func (f *Facts) NoHooks() bool { return f.guard != nil || forbidsNames && !guardsNames }

// nameFree are the folders of the run in which no rule about names holds. Where nothing can
// be written there is nothing to free.
func (f *Facts) nameFree(p *Profile) (out []string) {
	for _, given := range p.NameFree {
		target, info, err := resolve(given)
		if err != nil || !info.IsDir() || !f.writable(target) {
			continue
		}
		denied := func(d Denial) bool { return contains(d.Path, target) }
		if !slices.ContainsFunc(f.Denials, denied) {
			out = append(out, target)
		}
	}
	return out
}

// inside reports whether p lies in one of dirs.
func inside(dirs []string, p string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return contains(dir, p) })
}

// Texts are the patterns of rules, for a sentence.
func Texts(rules []nameguard.Rule) string { return strings.Join(texts(rules), " ") }

// nameRules are the rules of a run: its own patterns, the names that are protected in every
// run, and what its mounts take away, in case somebody outside lifts one of them. A link of
// a protected name has no mount that could keep it: here it stays what it is.
func (f *Facts) nameRules(p *Profile, mounts []mountPoint) nameguard.Config {
	c := nameguard.Config{
		Globs: slices.Concat(p.NameGlobs, nameguard.Everywhere()), Names: nameguard.MandatoryNew(), Packages: f.packages(),
		Free: f.nameFree(p), TrapRemove: p.NameRemove, Aliases: nameAliases(mounts, f.Roots),
	}
	if p.NameSecrets {
		c.Globs = append(c.Globs, nameguard.Secrets()...)
	}
	forbid := func(path string) {
		// What is denied in a free folder its mount alone keeps.
		if !inside(c.Free, path) {
			c.Paths = append(c.Paths, nameguard.Rule{Text: path, Source: nameguard.SourceDefault})
		}
	}
	for _, d := range f.Denials {
		forbid(d.Path)
	}
	for _, w := range f.Watches {
		forbid(w.Path)
	}
	for _, r := range f.Roots {
		if !r.State {
			continue
		}
		for _, name := range []string{"hooks", "settings*.json"} {
			c.Globs = append(c.Globs, nameguard.Rule{Text: path.Join(r.Path, "**", name), Source: nameguard.SourceDefault})
		}
	}
	return c
}

// guardStart has the inside put the command into a cage. Paths are bytes.
type guardStart struct {
	Free       [][]byte `json:"free"`
	Canary     []byte   `json:"canary"`
	TrapRemove bool     `json:"trapRemove,omitempty"`
}

// asked is what the inside is told.
func (g *nameGuard) asked() *guardStart {
	if g == nil {
		return nil
	}
	out := &guardStart{Canary: []byte(g.canary), TrapRemove: g.trapRemove}
	for _, dir := range g.free {
		out.Free = append(out.Free, []byte(dir))
	}
	return out
}
