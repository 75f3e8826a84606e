package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"postern/caddy-modules/session/lease"
	"postern/launcher/ports"
	"postern/launcher/sandbox"
	"postern/launcher/tty"
)

const runUsage = `postern run runs a command in a sandbox whose only way out is the appliance.

  postern run [FLAG]… -- CMD [ARG]…

CMD sees the working directory, or the folders of --bind, and the system's programs;
no other folder, no process and no network of this host. /tmp, the home and /run are
its own and end with it. What other tools act on later (.git/hooks, .git/config, shell
start files, editor settings) it cannot change. Its HTTP and SOCKS proxies are the
appliance's, which decides host by host; its pushes go through the appliance's gateway.
Unix sockets are refused (EAFNOSUPPORT), connected pairs excepted: whoever listens at one
in a folder of the run is outside the sandbox. A database or a language server that needs
one of its own wants --unix-sockets.

At a terminal CMD has one of its own: keys, signals and job control work as usual, and it
cannot type into yours. Where stdin or stdout is no terminal, it has the streams given.

It ends with CMD's status, 128+n when signal n killed it, 126 or 127 when it could not
be run, and 125 when nothing was started; the reason is then on stderr, in brackets.

`

const runUsageEnd = `
Flags are also read from POSTERN_NAME and from
  %s
whose keys are: policy repo agent workspace link allow network mode bind protect hide
deny_name free_dir deny_remove guard_names (auto, on, off) publish host_port nested_sandbox unix_sockets dns (auto,
fake, answer, off) environment (allow, strip) env all_proxy (http, socks, off) git_name
git_email git_hooks tty quiet; and for macOS mac_home (wide, narrow) mac_dns (off, guard, system) mac_open exec_grant
exec_deny. A flag wins over the environment, that over the file; lists add up.
`

// request is one run, as asked for.
type request struct {
	*settings
	ID    string
	Binds []sandbox.Bind // all of them, the working folder first
	Argv  []string
	Ports ports.Set

	summary *destination // nil: none is wanted
	unset   []string     // variables of --env that are not set here

	// given and open, if not nil, are what a host has said instead: its spec.
	given *sandbox.Profile
	open  *lease.Spec
}

// session is what the appliance is asked for.
func (r *request) session() lease.Spec {
	if r.open != nil {
		return *r.open
	}
	network := r.Network
	return lease.Spec{
		ID: r.ID, Policy: r.Policy, NetworkEnabled: &network, EgressAllowlist: r.Allow,
		Repository: r.Repo, LinkedRepositories: r.Links, Agent: r.Agent, Workspace: r.Workspace,
	}
}

// parseRun reads the command line of run over settings. The error is
// pflag.ErrHelp when help was asked for and printed.
func parseRun(args []string, stdout io.Writer) (*request, error) {
	file := settingsFile()
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	fs.SetInterspersed(false) // CMD's flags are CMD's
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	var (
		policy    = fs.String("policy", "", "`NAME` of the appliance's policy; its default otherwise")
		repo      = fs.String("repo", "", "the run's own repository, `HOST/OWNER/NAME`: its read token, its pushes")
		links     = fs.StringArray("link", nil, "another `REPO` it may push to, under the gateway's rules (repeatable)")
		mode      = fs.String("mode", "", "`MODE`: chat writes its folders; review, plan and orchestrate read them")
		binds     = fs.StringArray("bind", nil, "show `DIR[:ro]` instead of the working directory; repeatable, name . too to keep it")
		protect   = fs.StringArray("protect", nil, "`PATH` that is never writable (repeatable); a pattern is one of --deny-name")
		hide      = fs.StringArray("hide", nil, "`PATH` that is not readable, or a pattern as **/*.pem: what matches at the start (repeatable)")
		denyNames = fs.StringArray("deny-name", nil, "names that are never made, written or moved, at any depth: a `PATTERN` as .env, *.key or .git/hooks (repeatable)")
		freeDirs  = fs.StringArray("free-dir", nil, "`DIR` of the run in which no rule about names holds (repeatable)")
		guard     = fs.String("guard-names", "", "`auto|on|off`: keep what tools act on (.npmrc, .vscode, …) from being made at the top of the run's folders, without any pattern too (auto: where this system can)")
		network   = fs.String("network", "", "`on|off`: off refuses every request, pushes excepted")
		dns       = fs.String("dns", "", "`MODE` in which CMD looks names up: auto, fake, answer or off; see docs/launcher.md")
		allow     = fs.StringArray("allow", nil, "also allow `HOST [PORT…]`, unless a policy denies it (repeatable)")
		env       = fs.StringArray("env", nil, "pass `NAME[=VALUE]` on (repeatable)")
		publish   = fs.StringArrayP("publish", "p", nil, "lead `[[ADDR:]HOSTPORT:]PORT` of this host's loopback (or ADDR) to PORT inside (repeatable)")
		hostPorts = fs.StringArray("host-port", nil, "lead `PORT[:HOSTPORT]` inside to HOSTPORT, or PORT, of this host's loopback (repeatable)")
		id        = fs.String("id", "", "session `ID`: up to 64 of A-Z a-z 0-9 _ -; random otherwise")
		agent     = fs.String("agent", "", "`NAME` of the agent, for audit records")
		workspace = fs.String("workspace", "", "`NAME` of the workspace, for audit records")
		nested    = fs.Bool("nested-sandbox", false, "let CMD bring a sandbox of its own (leaves user namespaces open)")
		unixSocks = fs.Bool("unix-sockets", false, "let CMD make Unix sockets (it can then reach any that is made in its folders later)")
		terminal  = fs.String("tty", "", "`WHEN` CMD gets a terminal of its own: auto (where you are at one), on or off")
		quiet     = fs.BoolP("quiet", "q", false, "no warnings and no summary of refusals")
		summary   = fs.String("summary", "", "write what was denied as JSON to `FILE`, or to fd:N, when the run has ended")
		help      = fs.BoolP("help", "h", false, "print this")
	)
	if err := parseFlags(fs, args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return nil, usageError(err)
	}
	if *help {
		fmt.Fprint(stdout, runUsage, fs.FlagUsages(), fmt.Sprintf(runUsageEnd, file))
		return nil, pflag.ErrHelp
	}
	if fs.NArg() == 0 {
		return nil, usageError(errors.New("no command: postern run [FLAG]… -- CMD [ARG]…"))
	}

	s, err := loadSettings(file)
	if err != nil {
		return nil, &sandbox.Refusal{Reason: reasonSettings, Detail: "the settings are not usable", Err: err}
	}
	r := &request{settings: s, ID: *id, Argv: fs.Args()}
	override(fs, "policy", &s.Policy, *policy)
	override(fs, "repo", &s.Repo, *repo)
	override(fs, "agent", &s.Agent, *agent)
	override(fs, "workspace", &s.Workspace, *workspace)
	override(fs, "quiet", &s.Quiet, *quiet)
	override(fs, "nested-sandbox", &s.Nested, *nested)
	override(fs, "unix-sockets", &s.Unix, *unixSocks)
	s.Links = append(s.Links, *links...)
	s.Allow = append(s.Allow, *allow...)
	s.Env = append(s.Env, *env...)
	r.unset = unsetNames(*env)
	s.Publish = append(s.Publish, *publish...)
	s.Grants = append(s.Grants, *hostPorts...)
	if fs.Changed("mode") {
		if s.Mode, err = sandbox.ParseMode(*mode); err != nil {
			return nil, usageError(err)
		}
	}
	if fs.Changed("tty") {
		if s.TTY, err = tty.ParseMode(*terminal); err != nil {
			return nil, usageError(err)
		}
	}
	if s.TTY == tty.On && !sandbox.Terminals {
		return nil, usageError(errors.New("--tty on: a command has no terminal of its own on this system"))
	}
	if fs.Changed("guard-names") {
		if s.Guard, err = sandbox.ParseGuard(*guard); err != nil {
			return nil, usageError(fmt.Errorf("--guard-names: %w", err))
		}
	}
	if fs.Changed("network") {
		if s.Network, err = parseOnOff(*network); err != nil {
			return nil, usageError(fmt.Errorf("--network %w", err))
		}
	}
	if fs.Changed("dns") {
		if s.DNS, err = sandbox.ParseDNSMode(*dns); err != nil {
			return nil, usageError(err)
		}
	}
	if r.Ports, err = parsePorts(s.Publish, s.Grants); err != nil {
		return nil, err
	}
	if err := errors.Join(r.paths(*binds, *protect, *hide), r.names(*denyNames, *freeDirs)); err != nil {
		return nil, usageError(err)
	}
	if r.ID == "" {
		r.ID = newID()
	}
	spec := r.session()
	if err := spec.Validate(); err != nil {
		return nil, usageError(err)
	}
	if fs.Changed("summary") {
		if r.summary, err = openDestination(*summary); err != nil {
			return nil, usageError(err)
		}
	}
	return r, nil
}

// override lets a flag that was given win over a setting.
func override[T any](fs *pflag.FlagSet, name string, setting *T, flag T) {
	if fs.Changed(name) {
		*setting = flag
	}
}

// paths makes the paths of the flags absolute: they are relative to where the user
// is. The folders of the settings come behind the run's own.
func (r *request) paths(binds, protect, hide []string) error {
	if len(binds) == 0 {
		binds = []string{"."}
	}
	for _, text := range binds {
		b, err := sandbox.ParseBind(text)
		if err != nil {
			return err
		}
		if b.Path, err = filepath.Abs(b.Path); err != nil {
			return fmt.Errorf("find folder %s: %w", text, err)
		}
		r.Binds = append(r.Binds, b)
	}
	r.Binds = append(r.Binds, r.settings.Binds...)
	for _, list := range []struct {
		flag string
		from []string
		into *[]string
	}{{"protect", protect, &r.Protect}, {"hide", hide, &r.Hide}} {
		for _, text := range list.from {
			if sandbox.IsGlob(text) {
				*list.into = append(*list.into, text) // relative to each folder of the run
				continue
			}
			// Not cleaned: "link/.." is where the link leads to, one up.
			path := text
			if !filepath.IsAbs(text) {
				here, err := os.Getwd()
				if err != nil {
					return fmt.Errorf("find path %s: %w", text, err)
				}
				path = here + "/" + text
			}
			if _, err := os.Lstat(path); err != nil {
				return fmt.Errorf("--%s %s: what is to be protected or hidden must be there: %w", list.flag, text, err)
			}
			*list.into = append(*list.into, path)
		}
	}
	return nil
}

// splitGlobs tells paths from patterns.
func splitGlobs(list []string) (paths, globs []string) {
	for _, text := range list {
		if sandbox.IsGlob(text) {
			globs = append(globs, text)
		} else {
			paths = append(paths, text)
		}
	}
	return paths, globs
}

func usageError(err error) error { return misused("run", err) }

// unsetNames are the variables that are to be passed and are not there: nearly always a
// slip, of which the command would only say that its key is missing.
func unsetNames(env []string) (out []string) {
	for _, text := range env {
		if _, set := os.LookupEnv(text); !set && !strings.Contains(text, "=") {
			out = append(out, text)
		}
	}
	return out
}

// profile is what the sandbox is asked for.
func (r *request) profile(runDir string) *sandbox.Profile {
	p := r.asked()
	p.Name, p.Home, p.RunDir, p.GitDir = r.ID, os.Getenv("HOME"), runDir, runDir
	// The launcher's own settings and binary, where a folder of the run holds them.
	if file := settingsFile(); file != "" {
		p.Protected = append(p.Protected, filepath.Dir(file))
	}
	if exe, err := os.Executable(); err == nil {
		p.Protected = append(p.Protected, exe)
	}
	return p
}

// asked is the part of the profile that the caller says.
func (r *request) asked() *sandbox.Profile {
	if r.given != nil {
		p := *r.given
		p.Protected = slices.Clone(p.Protected)
		return &p
	}
	mac := r.Mac
	if mac.DNS == sandbox.MacGuard && r.lookups() == sandbox.DNSOff {
		mac.DNS = "off"
	}
	p := &sandbox.Profile{Binds: r.Binds, Mode: r.Mode, NestedSandbox: r.Nested, AllowUnix: r.Unix, Mac: mac}
	paths, patterns := splitGlobs(r.Protect)
	p.Protected = paths
	r.askNames(p, patterns)
	p.Hidden, p.HiddenGlobs = splitGlobs(r.Hide)
	// Start where the user is, if the run sees that; else in its first folder.
	if cwd, err := os.Getwd(); err == nil && r.shows(cwd) {
		p.Dir = cwd
	}
	return p
}

func (r *request) shows(dir string) bool {
	for _, b := range r.Binds {
		if rel, err := filepath.Rel(b.Path, dir); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}
