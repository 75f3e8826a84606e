package sandbox

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"postern/launcher/nameguard"
)

// Mode is what a run is for. It decides whether its folders may be written
// (SPEC 77).
type Mode string

// The modes. Only chat writes.
const (
	ModeChat        Mode = "chat"
	ModeReview      Mode = "review"
	ModePlan        Mode = "plan"
	ModeOrchestrate Mode = "orchestrate"
)

// Modes lists them in the order help texts use.
func Modes() []Mode { return []Mode{ModeChat, ModeReview, ModePlan, ModeOrchestrate} }

// ParseMode reads a mode; empty means chat, and an unknown one is an error, never
// chat (SPEC decision 8).
func ParseMode(text string) (Mode, error) {
	if text == "" {
		return ModeChat, nil
	}
	if m := Mode(text); slices.Contains(Modes(), m) {
		return m, nil
	}
	return "", fmt.Errorf("parse mode %q: want chat, review, plan or orchestrate", text)
}

// Writes reports whether the run's folders may be written in this mode.
func (m Mode) Writes() bool { return m == ModeChat || m == "" }

// Bind is one folder or file of the host that the run sees, at the same path.
type Bind struct {
	Path     string
	ReadOnly bool
}

// ParseBind reads DIR or DIR:ro or DIR:rw. A colon elsewhere belongs to the path.
func ParseBind(text string) (Bind, error) {
	b := Bind{Path: text}
	if p, ok := strings.CutSuffix(text, ":ro"); ok {
		b = Bind{Path: p, ReadOnly: true}
	} else if p, ok := strings.CutSuffix(text, ":rw"); ok {
		b.Path = p
	}
	if b.Path == "" {
		return Bind{}, fmt.Errorf("parse bind %q: no path", text)
	}
	return b, nil
}

// Profile is what one run may see and do, as the caller asks for it. Paths are
// absolute; they may be symlinks and need not be clean of "..".
type Profile struct {
	// Name is what the run is called, for the people who run others beside it.
	Name string

	// Binds are the host paths the run sees; nothing else of the home is there.
	Binds []Bind

	// Dir is where the command starts; it must lie in a bind. Empty means the
	// first bind.
	Dir string

	// Mode decides whether binds are writable. The zero value is chat.
	Mode Mode

	// Protected are never writable, in any mode (SPEC 78). The launcher's own settings
	// and binary belong here too: a run that could change them would be the last one.
	Protected []string

	// StateDirs are writable in every mode (SPEC 80), except for the settings and
	// hooks inside them.
	StateDirs []string

	// Hidden are not readable even where a bind would show them.
	Hidden []string

	// HiddenGlobs are patterns of what is not readable: every match that is there when
	// the run starts is hidden. They are absolute, or relative to each bind; see IsGlob.
	HiddenGlobs []string

	// NameGlobs are patterns of names that may not be made, written or moved, see package
	// nameguard. A run for which they cannot be kept is refused (SPEC 26).
	NameGlobs []nameguard.Rule

	// Guard says whether names are guarded where no pattern asks for it.
	Guard Guard

	// NameSecrets adds the names of secrets (SPEC section 2) where names are guarded at all.
	// On macOS they are forbidden to every run.
	NameSecrets bool

	// NameFree are folders of the run in which no rule about names holds, which an operator
	// has declared. What is protected or hidden there stays so.
	NameFree []string

	// NameRemove has the removal of such names refused as well.
	NameRemove bool

	// Home is $HOME inside: an empty private tmpfs at that path. Empty means
	// FallbackHome.
	Home string

	// RunDir is the appliance's run directory. A bind that would show it is refused.
	RunDir string

	// GitDir is a private directory in which the run's git configuration is made;
	// empty means that the run gets none.
	GitDir string

	// NestedSandbox leaves user namespaces usable inside, for tools that bring a
	// sandbox of their own.
	NestedSandbox bool

	// Mac is what only macOS can give.
	Mac Mac

	// AllowUnix lets the run make Unix sockets, for tools that talk over socket files
	// of their own (databases, language servers, agents of ssh and gpg). Without it a
	// socket that somebody outside makes in a folder of the run cannot be connected to;
	// with it only those are out of reach that were there at the start.
	AllowUnix bool
}

// FallbackHome is $HOME inside where the user's own cannot be a mount point.
const FallbackHome = "/home/postern"

// Paths inside the sandbox that are ours.
const (
	ownDir       = "/run/postern"
	InnerExe     = ownDir + "/postern"   // this binary, read-only
	InnerEmpty   = ownDir + "/empty"     // an empty directory: hooks and templates
	InnerGit     = ownDir + "/gitconfig" // the git configuration of the run
	innerRuntime = "/run/user"           // parent of XDG_RUNTIME_DIR
)

// validate checks what can be checked without looking at the disk.
func (p *Profile) validate() error {
	if len(p.NameGlobs) > 0 && !forbidsNames {
		return &Refusal{
			Reason: ReasonNameGlobs,
			Detail: "the run needs files to be unwritable by name: " + Texts(p.NameGlobs),
			Cure:   "no sandbox of this system can forbid a name that does not exist yet; drop these globs",
		}
	}
	if len(p.Binds) == 0 {
		return &Refusal{Reason: ReasonBind, Detail: "the run has no folder to work in", Cure: "name one"}
	}
	if !slices.Contains(append(Modes(), ""), p.Mode) {
		return fmt.Errorf("validate profile: unknown mode %q", p.Mode)
	}
	var errs []error
	for field, paths := range map[string][]string{
		"bind": bindPaths(p.Binds), "protected path": p.Protected, "state directory": p.StateDirs, "hidden path": p.Hidden, "free directory": p.NameFree,
	} {
		for _, text := range paths {
			if !path.IsAbs(text) || strings.ContainsRune(text, 0) {
				errs = append(errs, fmt.Errorf("validate profile: %s %q is not an absolute path", field, text))
			}
		}
	}
	return errors.Join(errs...)
}

func bindPaths(binds []Bind) []string {
	paths := make([]string, len(binds))
	for i, b := range binds {
		paths[i] = b.Path
	}
	return paths
}

// contains reports whether p is dir or lies below it; both are clean and absolute.
func contains(dir, p string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir+"/")
}
