package sandbox

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"postern/launcher/mountinfo"
	"postern/launcher/nameguard"
)

// guardsNames says that this system's sandbox has names guarded by a broker, and
// forbidsNames that it can forbid names that do not exist yet at all.
const (
	guardsNames  = runtime.GOOS == "linux"
	forbidsNames = guardsNames || runtime.GOOS == "darwin"
)

// Guard says when names are guarded (nameguard): with GuardAuto, which is also the empty
// one, where the system can; what it cannot guard then, masks and placeholders do. A pattern
// of a run's own asks for it whatever is said here, but for GuardOff, with which it is refused.
type Guard string

// The values of a Guard.
const (
	GuardAuto Guard = "auto"
	GuardOn   Guard = "on"
	GuardOff  Guard = "off"
)

// ParseGuard reads one; empty is GuardAuto.
func ParseGuard(text string) (Guard, error) {
	switch g := Guard(cmp.Or(text, string(GuardAuto))); g {
	case GuardAuto, GuardOn, GuardOff:
		return g, nil
	}
	return "", fmt.Errorf("%q is none of auto, on and off", text)
}

// hadNot is what comes before the reason, in a refusal for want of a guard.
const hadNot = "and that cannot be had here: "

// nameGuard is what a run needs to have names guarded (SPEC decision 5).
type nameGuard struct {
	rules *nameguard.Rules
	texts string // of the run's own patterns (Texts), for refusals; empty: it has none

	free    []string // trees in which the run acts by itself
	private []string // trees of its own that hold folders of the host
	canary  string   // a folder in which names are guarded

	trapRemove bool // names may not be removed either
}

// addGuard compiles the rules of a run. A name that is not there yet needs no placeholder on
// the host then: it is a rule.
func (f *Facts) addGuard(p *Profile) error {
	roots := granted(f)
	if !guardsNames || !slices.ContainsFunc(roots, func(r Root) bool { return r.Writable }) {
		return nil // nothing to keep, or nothing to keep it from
	}
	asked := len(p.NameGlobs) > 0
	must := asked || p.Guard == GuardOn
	if p.Guard == GuardOff {
		if asked {
			return &Refusal{Reason: ReasonNameGlobs, Detail: "the run needs files to be unwritable by name: " + Texts(p.NameGlobs) + ", and --guard-names off says that none are guarded", Cure: "drop these patterns, or do without --guard-names off (guard_names: off)"}
		}
		return nil
	}
	g, without := &nameGuard{texts: Texts(p.NameGlobs)}, "drop these patterns"
	if !asked {
		without = "without --guard-names on"
	}
	refuse := func(detail, cure string, err error) error {
		if !must {
			f.warnf("names that are not there yet are not guarded: %s", detail)
			return nil // as it would be without a guard
		}
		return &Refusal{Reason: ReasonNameGlobs, Detail: g.needs() + ", and " + detail, Cure: cure, Err: err}
	}
	if p.NestedSandbox {
		if !must {
			return nil // who asks for it is told what it costs
		}
		return refuse("a sandbox of its own could show it the same files elsewhere", "do without --nested-sandbox, or "+without, nil)
	}
	i := slices.IndexFunc(roots, func(r Root) bool { return r.Writable && r.Dir })
	if i < 0 {
		if !must {
			return nil // a file that is mounted keeps its name
		}
		return refuse("it has no folder that it may write, only files", "show the folders that the files are in", nil)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return refuse("what is mounted where cannot be told", "see why /proc/self/mountinfo cannot be read", err)
	}
	if !must {
		// What is missing here would be a refusal later, of a run that works without.
		if can, err := canGuard(string(table), writable(roots)); err != nil {
			return refuse(err.Error(), "", err)
		} else if !can {
			return nil // doctor says it
		}
	}
	if g.rules, err = nameguard.Compile(f.nameRules(p, readMounts(string(table)))); err != nil {
		if !asked {
			return refuse(err.Error(), "do "+without, err)
		}
		return &Refusal{Reason: ReasonGlob, Detail: "what may not be written by name cannot be told", Cure: "mend the rule that is named", Err: err}
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

// needs says what the guard is for.
func (g *nameGuard) needs() string {
	if g.texts == "" {
		return "the run is to find names unwritable that tools outside act on, as .git/hooks"
	}
	return "the run needs files to be unwritable by name: " + g.texts
}

// writable are the paths of the roots that may be written.
func writable(roots []Root) (out []string) {
	for _, r := range roots {
		if r.Writable {
			out = append(out, r.Path)
		}
	}
	return out
}

// NoHooks reports whether rules about names keep the run from making hooks anywhere: on
// macOS the profile always does.
func (f *Facts) NoHooks() bool {
	return f.guard != nil && f.guard.texts != "" || forbidsNames && !guardsNames
}

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

// Texts are the patterns of rules and where they stand, for a sentence: *.key .env (spec).
func Texts(rules []nameguard.Rule) string {
	var b strings.Builder
	for i, r := range rules {
		switch {
		case i == 0:
		case r.Source == rules[i-1].Source:
			b.WriteByte(' ')
		default:
			b.WriteString(", ")
		}
		b.WriteString(r.Text)
		if r.Source != "" && (i == len(rules)-1 || r.Source != rules[i+1].Source) {
			fmt.Fprintf(&b, " (%s)", r.Source)
		}
	}
	return b.String()
}

// nameRules are the rules of a run. Each has what its mounts take away, in case somebody
// outside lifts one of them: a link of a protected name has no mount that could keep it, here
// it stays what it is. And each has the names that are protected in every run, at the top of
// its folders. One with patterns of its own has these names at every depth, and those that
// git's own directories have: it can make no linked worktree, and not unpack what brings them.
func (f *Facts) nameRules(p *Profile, mounts []mountinfo.Mount) nameguard.Config {
	c := nameguard.Config{Free: f.nameFree(p), TrapRemove: p.NameRemove, Aliases: nameAliases(mounts, f.Roots)}
	if len(p.NameGlobs) > 0 {
		c.Globs, c.Names, c.Packages = slices.Concat(p.NameGlobs, nameguard.Everywhere()), nameguard.MandatoryNew(), f.packages()
		if p.NameSecrets {
			c.Globs = append(c.Globs, nameguard.Secrets()...)
		}
	}
	forbid := func(path, source string) {
		// What is denied in a free folder its mount alone keeps.
		if !inside(c.Free, path) {
			c.Paths = append(c.Paths, nameguard.Rule{Text: path, Source: source})
		}
	}
	// Of two rules for one path the first is told: what is kept by a mount stays kept, whatever
	// becomes of the guard.
	for i := range f.Denials {
		forbid(f.Denials[i].Path, f.Denials[i].source())
	}
	for _, w := range f.Watches {
		forbid(w.Path, nameguard.SourceKept)
	}
	for _, r := range f.Roots {
		if len(p.NameGlobs) == 0 && r.Writable && r.Dir && !r.State {
			for _, name := range nameguard.Top() {
				forbid(path.Join(r.Path, name), nameguard.SourceGuard)
			}
		}
		if !r.State {
			continue
		}
		for _, name := range []string{"hooks", "settings*.json"} {
			c.Below = append(c.Below, nameguard.Below{Dir: r.Path, Rule: nameguard.Rule{Text: name, Source: nameguard.SourceDefault}})
		}
	}
	return c
}

// source is where a denial stands, as a rule about names.
func (d *Denial) source() string {
	switch {
	case !d.asked:
		return nameguard.SourceKept
	case d.Kind == Hide:
		return nameguard.SourceHidden
	}
	return nameguard.SourceProtected
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
