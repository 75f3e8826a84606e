package sandbox

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"postern/launcher/nameguard"
	"postern/launcher/sandbox/seatbelt"
)

// Mac is what can be said about a run on macOS alone, where the host stays visible and
// the home writable (SPEC 31, 43).
type Mac struct {
	// Narrow leaves nothing of the home writable but the run's folders (decision 6).
	Narrow bool

	// DNS says what the run may ask the system's resolver (decision 4); empty is off.
	DNS string

	// Open lifts single hardening denies, by name; see seatbelt.Hardenings.
	Open []string

	// ExecGrants are folders in writable ones from which programs may be executed
	// (SPEC 37). They are ignored on Linux, where nothing is locked (SPEC 50).
	ExecGrants []string

	// Dangerous are programs that are never executed, beside the built-in ones.
	Dangerous []string
}

// MacGuard is the setting of Mac.DNS by which a run has a resolver of its own, at a port
// of the host's loopback.
const MacGuard = "guard"

// ParseDNS reads a setting of Mac.DNS.
func ParseDNS(text string) (seatbelt.DNS, error) {
	switch text {
	case "", "off":
		return seatbelt.DNSOff, nil
	case MacGuard:
		return seatbelt.DNSGuard, nil
	case "system":
		return seatbelt.DNSSystem, nil
	}
	return 0, errors.New("want off, guard or system")
}

// What the home of a user on macOS has, beside what every home has (SPEC section 2).
var (
	// neverWritten are start files, agents that start with the session, and what tools
	// outside the sandbox take their orders from.
	neverWritten = []string{
		".ssh", ".aws", ".kube", ".docker", ".netrc", ".git-credentials", "Library/LaunchAgents", "Library/Preferences", ".config/gh",
		"Library/Keychains", ".claude/settings.json", ".claude/settings.local.json", ".claude.json", ".claude/hooks",
		".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".gitconfig", ".zshenv", ".zlogin", ".config/git", ".config/postern",
	}

	// scratch is writable for everybody. The resolved spellings are the kernel's. What is
	// opened below /dev/fd is open already, and gets no other rights by it.
	scratch = []string{"/tmp", "/private/tmp", "/var/folders", "/private/var/folders", "/dev/fd"}
	devices = []string{"/dev/null", "/dev/dtracehelper", "/dev/tty", "/dev/stdout", "/dev/stderr"}

	// tools are programs that a home may hold, in a version manager's folder.
	tools = []string{"node", "npm", "npx", "pnpm", "yarn", "python", "python3", "pip", "pip3", "uv", "dart", "flutter", "bun", "deno", "cargo", "rustc", "go", "git"}

	// dangerous are looked for in the system's directories. rm is not among them: no
	// build works without it (decision 11).
	dangerous     = []string{"mkfs.*", "fdisk", "parted", "dd", "chroot", "unshare", "nsenter", "sudo"}
	dangerousDirs = []string{"/sbin", "/usr/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"}

	// shells run what the user types, and are never dangerous.
	shells = []string{"/bin/bash", "/bin/sh", "/bin/zsh"}
)

// macHost is what Policy asks of a host; tests have one of their own.
type macHost struct {
	Resolve func(string) (string, error)
	Glob    func(pattern string) ([]string, error)

	// Find looks a program up in the PATH that the command will have.
	Find func(name string) (string, error)
}

// macRun is what one start adds.
type macRun struct {
	Program string // what will be executed, as the user named it
	Exe     string // our own binary
	Dir     string // the run's private directory, see privateDir
	Temp    string // the name of its temporary directory in there
	Ports   []int
	Serve   []int
	Guard   int // the port of the run's resolver
	Tag     string
}

// seatbeltPolicy is the policy of one run (SPEC 41): from what the caller asked for, what
// Gather found, and what the start adds. It asks nothing but h.
func seatbeltPolicy(f *Facts, r macRun, h macHost) (*seatbelt.Policy, error) {
	p := f.wanted
	switch {
	case p.NestedSandbox:
		return nil, &Refusal{Reason: ReasonProfile, Detail: "a sandbox inside the run's is not possible: Seatbelt does not nest", Cure: "drop --nested-sandbox, and have the tool use none of its own"}
	case p.AllowUnix:
		return nil, &Refusal{Reason: ReasonProfile, Detail: "Unix sockets of the run's own cannot be told from those of the host here", Cure: "drop --unix-sockets"}
	}
	dns, err := ParseDNS(p.Mac.DNS)
	if err != nil {
		return nil, &Refusal{Reason: ReasonProfile, Detail: "the DNS mode " + p.Mac.DNS + " is unknown", Err: err}
	}
	out := &seatbelt.Policy{
		Writable: slices.Clone(scratch), Devices: devices,
		Protected: slices.Clone(p.Protected), Hidden: slices.Clone(p.Hidden),
		Secrets: texts(nameguard.Secrets()), Names: texts(nameguard.Mandatory()), NamesFree: f.packages(), Free: p.NameFree,
		ExecGrants: p.Mac.ExecGrants, Tools: []string{r.Exe},
		Network: true, Ports: r.Ports, Serve: r.Serve, DNS: dns, GuardPort: r.Guard, Open: p.Mac.Open, Tag: r.Tag, Resolve: h.Resolve,
	}
	for _, home := range f.homes {
		if !p.Mac.Narrow {
			out.Writable = append(out.Writable, home)
		}
		out.Hidden = append(out.Hidden, below(home, secrets)...)
		out.Protected = append(out.Protected, below(home, neverWritten)...)
	}
	if r.Temp != "" {
		// Whole repositories are unpacked there, and nothing outside looks at them.
		out.NamesFree = append(out.NamesFree, r.Temp)
	}
	if p.RunDir != "" {
		out.Hidden = append(out.Hidden, p.RunDir) // the appliance's sockets, and its ledger
	}
	for _, root := range f.Roots {
		if root.Writable {
			out.Writable = append(out.Writable, root.Path)
		} else {
			out.ReadOnly = append(out.ReadOnly, root.Path)
		}
	}
	for _, dir := range p.StateDirs { // writable in every mode, what steers the runner is not
		out.Protected = append(out.Protected, path.Join(dir, "hooks"), path.Join(dir, "settings.json"), path.Join(dir, "settings.local.json"))
	}
	for _, d := range f.Denials {
		if d.Kind == Hide {
			out.Hidden = append(out.Hidden, d.Path)
		} else {
			out.Protected = append(out.Protected, d.Path)
		}
	}
	out.Protected = append(out.Protected, path.Join(r.Dir, ownGit), path.Join(r.Dir, ownEmpty), path.Join(r.Dir, ownSeal), path.Join(r.Dir, ownExe))
	if err := addNameGlobs(out, p.NameGlobs); err != nil {
		return nil, err
	}
	addPrograms(out, p, r, h)
	if err := out.Validate(); err != nil {
		return nil, &Refusal{Reason: ReasonProfile, Detail: "the run cannot be described to Seatbelt", Err: err}
	}
	return out, nil
}

func below(dir string, names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, path.Join(dir, name))
	}
	return out
}

func texts(rules []nameguard.Rule) []string {
	out := make([]string, 0, len(rules))
	for _, r := range rules {
		out = append(out, r.Text)
	}
	return out
}

// addNameGlobs takes the run's own patterns; what means nothing is refused rather than
// left out.
func addNameGlobs(out *seatbelt.Policy, globs []nameguard.Rule) error {
	for _, glob := range globs {
		if _, err := nameguard.Parse(glob.Text); err != nil {
			return &Refusal{Reason: ReasonNameGlobs, Detail: "what is to be kept unwritable by name cannot be told (" + glob.Source + ")", Err: err}
		}
	}
	out.Secrets = append(out.Secrets, texts(globs)...)
	return nil
}

// addPrograms says what may be executed in writable folders, and what nowhere. A tool
// that the run could rewrite would be any program: it is protected as well.
func addPrograms(out *seatbelt.Policy, p *Profile, r macRun, h macHost) {
	names := tools
	if r.Program != "" {
		names = append([]string{r.Program}, tools...)
	}
	for _, name := range names {
		found, err := h.Find(name)
		if err != nil || !path.IsAbs(found) {
			continue // it will not be found then, either
		}
		for _, exe := range []string{found, resolvedOr(h, found)} {
			out.Tools = append(out.Tools, exe)
			if insideAny(out.Writable, exe) && !slices.Contains(p.Mac.ExecGrants, path.Dir(exe)) {
				out.Protected = append(out.Protected, exe)
			}
		}
	}
	for _, dir := range dangerousDirs {
		for _, name := range dangerous {
			found, err := h.Glob(path.Join(dir, name))
			if err != nil {
				continue // only a malformed pattern is an error, and these are not
			}
			for _, exe := range found {
				out.Dangerous = append(out.Dangerous, exe, resolvedOr(h, exe))
			}
		}
	}
	for _, exe := range p.Mac.Dangerous {
		out.Dangerous = append(out.Dangerous, exe, resolvedOr(h, exe))
	}
	kept := make([]string, 0, 2*len(shells))
	for _, shell := range shells {
		kept = append(kept, shell, resolvedOr(h, shell))
	}
	out.Dangerous = slices.DeleteFunc(out.Dangerous, func(exe string) bool { return slices.Contains(kept, exe) })
}

func resolvedOr(h macHost, given string) string {
	if target, err := h.Resolve(given); err == nil {
		return target
	}
	return given
}

func insideAny(dirs []string, p string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return contains(dir, p) })
}

// thisMac asks the real host.
func thisMac(env []string) macHost {
	return macHost{
		Resolve: filepath.EvalSymlinks,
		Glob:    filepath.Glob,
		Find: func(name string) (string, error) {
			found, err := lookPath(name, env)
			if err != nil {
				return "", err
			}
			if filepath.IsAbs(found) {
				return found, nil
			}
			if strings.Contains(name, "/") {
				return filepath.Abs(found)
			}
			return "", fs.ErrNotExist // below a relative entry of PATH
		},
	}
}
