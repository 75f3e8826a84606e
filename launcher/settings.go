package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/viper"

	"postern/launcher/environ"
	"postern/launcher/nameguard"
	"postern/launcher/sandbox"
	"postern/launcher/tty"
)

// settings are what a run is asked to be. They come from, the first that says
// something: a flag, POSTERN_NAME, the settings file. Lists add up instead.
type settings struct {
	Policy    string
	Repo      string
	Agent     string
	Workspace string
	Links     []string
	Allow     []string

	Network bool
	Mode    sandbox.Mode
	Binds   []sandbox.Bind // beside those of --bind
	Protect []string
	Hide    []string

	DenyNames  []nameguard.Rule // patterns of names that may not be made
	FreeDirs   []string         // folders of the run in which no rule about names holds
	Guard      sandbox.Guard    // whether names are guarded where no pattern asks for it
	DenyRemove bool             // such names may not be removed either

	Publish []string
	Grants  []string // ports of the host
	Nested  bool
	Unix    bool

	DNS sandbox.DNSMode // how names are looked up inside; empty: auto

	Environment environ.Mode
	Env         []string
	AllProxy    environ.AllProxy

	Mac sandbox.Mac

	GitName, GitEmail string
	GitHooks          bool
	TTY               tty.Mode
	Quiet             bool
}

// known are the keys of the settings file. The run directory is POSTERN_RUN alone,
// for the appliance reads that too and nothing else.
var known = []string{
	"policy", "repo", "agent", "workspace", "link", "allow", "network", "mode", "bind", "protect", "hide", "deny_name", "free_dir", "deny_remove", "guard_names", "publish", "host_port", "nested_sandbox", "unix_sockets", "dns",
	"environment", "env", "all_proxy", "mac_home", "mac_dns", "mac_open", "exec_grant", "exec_deny", "git_name", "git_email", "git_hooks", "tty", "quiet",
}

// settingsFile is where the settings are: $XDG_CONFIG_HOME/postern/launcher.yaml.
// The working directory is never looked in: it is the folder of the run, and what
// lies there is the run's.
func settingsFile() string {
	base := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return ""
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "postern", "launcher.yaml")
}

// loadSettings reads the file at path, if it is there, and the environment.
func loadSettings(path string) (*settings, error) {
	v, err := readSettings(path)
	if err != nil {
		return nil, err
	}
	r := reader{v: v, file: path}
	s := &settings{
		Policy:    r.text("policy"),
		Repo:      r.text("repo"),
		Agent:     r.text("agent"),
		Workspace: r.text("workspace"),
		Links:     r.list("link"),
		Allow:     r.list("allow"),
		Network:   r.onOff("network", true),
		Protect:   r.paths("protect"),
		Hide:      r.paths("hide"),
		DenyNames: r.names("deny_name"), FreeDirs: r.folders("free_dir"), DenyRemove: r.onOff("deny_remove", false),
		Publish:  r.ports("publish"),
		Grants:   r.ports("host_port"),
		Nested:   r.onOff("nested_sandbox", false),
		Unix:     r.onOff("unix_sockets", false),
		Env:      r.list("env"),
		GitName:  r.text("git_name"),
		GitEmail: r.text("git_email"),
		GitHooks: r.onOff("git_hooks", false),
		Quiet:    r.onOff("quiet", false),
	}
	s.Mac = r.mac()
	if s.Mode, err = sandbox.ParseMode(r.text("mode")); err != nil {
		r.fail("mode", err)
	}
	if s.Guard, err = sandbox.ParseGuard(r.text("guard_names")); err != nil {
		r.fail("guard_names", err)
	}
	if s.DNS, err = sandbox.ParseDNSMode(r.text("dns")); err != nil {
		r.fail("dns", err)
	}
	if s.AllProxy, err = environ.ParseAllProxy(r.text("all_proxy")); err != nil {
		r.fail("all_proxy", err)
	}
	if s.TTY, err = tty.ParseMode(r.text("tty")); err != nil {
		r.fail("tty", err)
	}
	switch m := environ.Mode(r.text("environment")); m {
	case "":
		s.Environment = environ.Allow
	case environ.Allow, environ.Strip:
		s.Environment = m
	default:
		r.fail("environment", fmt.Errorf("%q is neither allow nor strip", m))
	}
	for _, text := range r.paths("bind") {
		b, err := sandbox.ParseBind(text)
		if err != nil {
			r.fail("bind", err)
		}
		s.Binds = append(s.Binds, b)
	}
	r.check(s)
	return s, errors.Join(r.errs...)
}

// readSettings gathers what the environment and the file at path say. It returns nil
// when both are silent, which is the usual case, and saves the time at every start.
func readSettings(path string) (*viper.Viper, error) {
	said := slices.ContainsFunc(known, func(key string) bool { return os.Getenv("POSTERN_"+strings.ToUpper(key)) != "" })
	if _, err := os.Stat(path); !said && (path == "" || errors.Is(err, fs.ErrNotExist)) {
		return nil, nil //nolint:nilnil // nothing was said
	}
	v := viper.New()
	v.SetEnvPrefix("postern")
	for _, key := range known {
		if err := v.BindEnv(key); err != nil {
			return nil, fmt.Errorf("bind setting %s: %w", key, err)
		}
	}
	if path != "" {
		if err := readSettingsFile(v, path); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// readSettingsFile reads the file, if it is there and nobody else may write it.
func readSettingsFile(v *viper.Viper, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !slices.Contains([]int{0, os.Geteuid()}, int(st.Uid)) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("read settings: %s belongs to, or is writable by, somebody else; chmod 0600 it", path)
	}
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		return fmt.Errorf("read settings %s: %w", path, err)
	}
	var unknown []error
	keys := v.AllKeys()
	slices.Sort(keys)
	for _, key := range keys {
		if !slices.Contains(known, key) {
			unknown = append(unknown, fmt.Errorf("read settings %s: unknown key %q (known: %s)", path, key, strings.Join(known, " ")))
		}
	}
	return errors.Join(unknown...)
}

// reader reads typed values and collects what is wrong with them.
type reader struct {
	v    *viper.Viper // nil: nothing was said
	file string
	errs []error
}

func (r *reader) get(key string) any {
	if r.v == nil {
		return nil
	}
	return r.v.Get(key)
}

func (r *reader) fail(key string, err error) {
	r.errs = append(r.errs, fmt.Errorf("read setting %s of %s: %w", key, r.from(key), err))
}

// from is where a setting was said.
func (r *reader) from(key string) string {
	if name := "POSTERN_" + strings.ToUpper(key); os.Getenv(name) != "" {
		return name
	}
	return r.file
}

func (r *reader) text(key string) string {
	switch v := r.get(key).(type) {
	case nil:
		return ""
	case string:
		return v
	case int, bool, float64:
		return fmt.Sprint(v)
	default:
		r.fail(key, errors.New("want one text"))
		return ""
	}
}

func (r *reader) onOff(key string, otherwise bool) bool {
	switch v := r.get(key).(type) {
	case nil:
		return otherwise
	case bool: // YAML reads on and off as such, too
		return v
	case string:
		on, err := parseOnOff(v)
		if err != nil {
			r.fail(key, err)
		}
		return on
	default:
		r.fail(key, errors.New("want on or off"))
		return otherwise
	}
}

func parseOnOff(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "on", "true", "yes", "1":
		return true, nil
	case "off", "false", "no", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither on nor off", text)
}

// list reads a list of texts; one text is split at white space, as POSTERN_ALLOW
// would be written.
func (r *reader) list(key string) []string {
	switch v := r.get(key).(type) {
	case nil:
		return nil
	case string:
		return strings.Fields(v)
	case []any:
		out := make([]string, 0, len(v))
		for _, e := range v {
			text, ok := e.(string)
			if !ok {
				r.fail(key, fmt.Errorf("%v is not a text", e))
				continue
			}
			out = append(out, text)
		}
		return out
	default:
		r.fail(key, errors.New("want a list of texts"))
		return nil
	}
}

// paths reads a list of absolute paths; ~ is the home. There is no other folder they
// could be relative to.
func (r *reader) paths(key string) []string {
	out := r.list(key)
	for i, path := range out {
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				r.fail(key, err)
				continue
			}
			out[i] = filepath.Join(home, rest)
		}
		// A pattern may be relative: to each folder of the run.
		if !filepath.IsAbs(out[i]) && (key == "bind" || !sandbox.IsGlob(path)) {
			r.fail(key, fmt.Errorf("%q is not an absolute path", path))
		}
	}
	return out
}
