package environ

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Mode says where the caller's variables start from.
type Mode string

// The modes.
const (
	// Allow takes over the variables of the list and those that are named.
	Allow Mode = "allow"

	// Strip takes over everything but the dangerous.
	Strip Mode = "strip"
)

// AllProxy says what ALL_PROXY names (SPEC decision 10).
type AllProxy string

// The values of AllProxy.
const (
	AllHTTP  AllProxy = "http"  // the default: every client can be constructed with it
	AllSOCKS AllProxy = "socks" // with the scheme socks5h: names are resolved by the proxy
	AllOff   AllProxy = "off"
)

// ParseAllProxy reads a setting; empty means http.
func ParseAllProxy(text string) (AllProxy, error) {
	switch p := AllProxy(text); p {
	case "":
		return AllHTTP, nil
	case AllHTTP, AllSOCKS, AllOff:
		return p, nil
	}
	return "", fmt.Errorf("parse all_proxy %q: want http, socks or off", text)
}

// Run is what a run's environment is made of.
type Run struct {
	Mode Mode     // empty means Allow
	Host []string // the caller's environment, NAME=VALUE

	// Pass are NAME (taken from Host, if it is there) or NAME=VALUE.
	Pass []string

	Session  string // id
	Home     string
	Dir      string // where the command starts
	Runtime  string // XDG_RUNTIME_DIR
	Temp     string // TMPDIR; empty means /tmp
	HTTP     string // address of the HTTP proxy inside, host:port
	SOCKS    string // address of the SOCKS proxy inside, host:port
	AllProxy AllProxy

	// Nameserver is where the run can ask for names, host:port, where no file of the
	// system says so; empty otherwise.
	Nameserver string

	// SharedHome says that Home is the user's own, with git's configuration of the user.
	SharedHome bool

	// NoHooks says that no repository can be given hooks, by rules about names.
	NoHooks bool

	// Login is what the proxies ask for, nil for nothing.
	Login *url.Userinfo

	// Connect is the program that joins its standard streams to HOST PORT through
	// the SOCKS proxy, for ssh. It must need no quoting.
	Connect string

	GitConfig string // file with git's configuration; empty: none
	ReadToken string // empty: none
}

// allowed are taken over in mode Allow: what shapes output, and who commits.
var allowed = set(
	"PATH", "TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLUMNS", "LINES",
	"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE",
	"LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "CI", "DEBIAN_FRONTEND",
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
	"SOURCE_DATE_EPOCH",
)

func isAllowed(name string) bool { return allowed[name] || strings.HasPrefix(name, "LC_") }

// defaultPath stands for a PATH that is not there.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Build composes the environment, sorted by name. The error names a variable of Pass
// that may not be passed.
func (r *Run) Build() ([]string, error) {
	vars := map[string]string{}
	for _, kv := range r.Host {
		name, value, ok := split(kv)
		switch {
		case !ok || Dangerous(name):
		case r.Mode == Strip || isAllowed(name):
			vars[name] = value
		}
	}
	if vars["PATH"] == "" {
		vars["PATH"] = defaultPath
	}
	if err := r.pass(vars); err != nil {
		return nil, err
	}
	r.place(vars)
	r.proxies(vars)
	r.git(vars)

	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env, nil
}

// split takes NAME=VALUE apart. What is no variable to the shell is no variable to
// us: exported functions and the like have names that are not names.
func split(kv string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(kv, "=")
	return name, value, ok && isName(name) && strings.IndexByte(value, 0) < 0
}

func isName(name string) bool {
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

func (r *Run) pass(vars map[string]string) error {
	for _, text := range r.Pass {
		name, value, given := strings.Cut(text, "=")
		if !isName(name) || strings.IndexByte(value, 0) >= 0 {
			return fmt.Errorf("pass variable %q: not a NAME or NAME=VALUE", name)
		}
		if name == javaOptions {
			if !given {
				value, _ = lookup(r.Host, name)
			}
			if err := checkJava(value); err != nil {
				return err
			}
			vars[name] = value
			continue
		}
		if Dangerous(name) {
			return fmt.Errorf("pass variable %s: it decides what programs load, or who they are to others, and is never passed", name)
		}
		if given {
			vars[name] = value
			continue
		}
		if value, there := lookup(r.Host, name); there {
			vars[name] = value
		}
	}
	return nil
}

// lookup is the value of a variable, the last if there are several.
func lookup(env []string, name string) (value string, there bool) {
	for _, kv := range env {
		if n, v, ok := split(kv); ok && n == name {
			value, there = v, true
		}
	}
	return value, there
}

// place says where the run is.
func (r *Run) place(vars map[string]string) {
	vars["HOME"] = r.Home
	vars["PWD"] = r.Dir
	temp := r.Temp
	if temp == "" {
		temp = "/tmp"
	}
	vars["TMPDIR"] = temp
	vars["TMPPREFIX"] = temp + "/zsh" // where zsh puts here-documents
	if r.Runtime != "" {
		vars["XDG_RUNTIME_DIR"] = r.Runtime
	}
	vars["POSTERN_SESSION"] = r.Session
	if r.NoHooks && vars[cargoVCS] == "" {
		vars[cargoVCS] = "none"
	}
}

// cargoVCS says what cargo new and cargo init make of a new package. A repository that
// they make has a folder for hooks, which no configuration takes away: libgit2 makes it.
const cargoVCS = "CARGO_CARGO_NEW_VCS"

// proxies point every client that can be pointed. Clients disagree about the case of
// the names, so both are there; all values carry a scheme.
func (r *Run) proxies(vars map[string]string) {
	if r.HTTP == "" {
		return // a run without a sandbox, and without an appliance
	}
	httpURL := (&url.URL{Scheme: "http", User: r.Login, Host: r.HTTP}).String()
	socksURL := (&url.URL{Scheme: "socks5h", User: r.Login, Host: r.SOCKS}).String()
	both := func(name, value string) {
		vars[name], vars[strings.ToLower(name)] = value, value
	}
	both("HTTP_PROXY", httpURL)
	both("HTTPS_PROXY", httpURL)
	both("FTP_PROXY", httpURL)
	switch r.AllProxy {
	case AllHTTP, "":
		both("ALL_PROXY", httpURL)
	case AllSOCKS:
		both("ALL_PROXY", socksURL)
	case AllOff:
	}
	// Only what is reachable without a proxy: the sandbox's own loopback. Private
	// ranges here would make clients connect to where no route leads.
	both("NO_PROXY", "localhost,127.0.0.1,::1")
	vars["POSTERN_SOCKS"] = socksURL
	if r.Nameserver != "" {
		vars["POSTERN_NAMESERVER"] = r.Nameserver
	}
	vars["YARN_HTTP_PROXY"], vars["YARN_HTTPS_PROXY"] = httpURL, httpURL // yarn from 2 on knows no others
	vars["NODE_USE_ENV_PROXY"] = "1"                                     // node's fetch ignores the others without it, from 22.21 on
	vars[javaOptions] = r.java(vars[javaOptions])
}

// git has no prompts, for nobody would answer; no credential helper but the read
// token; and ssh through the SOCKS proxy.
func (r *Run) git(vars map[string]string) {
	vars["GIT_TERMINAL_PROMPT"] = "0"
	vars["GIT_ASKPASS"] = "/bin/false"
	vars["SSH_ASKPASS"] = "/bin/false"
	// The home is new, so no host key is known: the first is taken and kept. A
	// ControlPath of the host would lead past the proxy.
	vars["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ControlMaster=no -o ControlPath=none"
	if r.Connect != "" {
		vars["GIT_SSH_COMMAND"] += " -o ProxyCommand='" + r.Connect + " %h %p'"
	}
	vars["GIT_SSH_VARIANT"] = "ssh"
	if r.GitConfig != "" {
		vars["GIT_CONFIG_SYSTEM"] = r.GitConfig
	}
	if r.SharedHome {
		// Its helpers and rewritings are for the user's own git.
		vars["GIT_CONFIG_GLOBAL"] = "/dev/null"
	}
	if r.ReadToken != "" {
		vars["GH_TOKEN"], vars["GITHUB_TOKEN"] = r.ReadToken, r.ReadToken
	}
}
