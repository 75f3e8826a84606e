package gitconfig

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Config is what a run's git needs to know.
type Config struct {
	Gateway string   // "http://git.internal/"; empty: no gateway, pushes go where they go
	Forges  []string // hosts whose pushes the gateway takes, lower case: "github.com"
	Proxy   string   // URL of the session's HTTP proxy, with what that asks for
	Helper  string   // program and subcommand that know the read token, needing no quoting; empty: none

	UserName, UserEmail string   // who commits; empty: not said
	Safe                []string // worktrees whose owner git need not ask about
	Empty               string   // an empty directory: hooks and templates
	Hooks               bool     // run the repository's own hooks
}

// Text is the configuration file.
func (c *Config) Text() (string, error) {
	if err := c.validate(); err != nil {
		return "", err
	}
	var w writer
	w.section("user", "")
	w.set("name", c.UserName)
	w.set("email", c.UserEmail)

	w.section("init", "")
	w.set("templateDir", c.Empty)
	w.section("core", "")
	if !c.Hooks {
		w.set("hooksPath", c.Empty)
	}
	w.section("safe", "")
	for _, dir := range c.Safe {
		w.set("directory", dir)
	}
	// Without it git asks the gateway for upload-pack before a push, which it has not.
	w.section("push", "")
	w.set("negotiate", "false")
	w.section("http", "")
	w.set("proxy", c.Proxy)

	for _, forge := range c.Forges {
		c.forge(&w, forge)
	}
	if c.Gateway != "" {
		// Said for the gateway by name, so that pushes reach it even where the proxy
		// variables are gone.
		w.section("http", c.Gateway)
		w.set("proxy", c.Proxy)
	}
	return w.String(), nil
}

// forge writes the rules for one forge.
func (c *Config) forge(w *writer, host string) {
	base := "https://" + host + "/"
	if c.Gateway != "" {
		w.section("url", c.Gateway+host+"/")
		for _, form := range append([]string{base}, Forms(host)...) {
			w.set("pushInsteadOf", form)
		}
	}
	// Fetches over ssh have no key in a sandbox; over HTTPS they have the read token.
	w.section("url", base)
	for _, form := range Forms(host) {
		w.set("insteadOf", form)
	}
	w.section("http", strings.TrimSuffix(base, "/"))
	w.set("proxy", c.Proxy)
	w.section("credential", strings.TrimSuffix(base, "/"))
	w.empty("helper") // forgets every helper read before
	if c.Helper != "" && c.Gateway != "" {
		// Its token is never about to expire. git appends what is to be done.
		w.set("helper", c.Helper+" "+c.Gateway)
	}
	w.set("helper", tokenHelper)
}

// tokenHelper answers with the token that is in the environment, so that it stands
// in no file and no argument. It is asked only when the forge wants to know, and
// where the appliance has said nothing: that one is the first of the run, and may
// have expired.
//
//nolint:gosec // it names a variable and holds no secret
const tokenHelper = `!f() { test "$1" = get && test -n "$GH_TOKEN" && printf 'username=x-access-token\npassword=%s\n' "$GH_TOKEN"; }; f`

// Forms are the spellings of a forge, beside https://HOST/, that git takes for
// prefixes of a URL. git compares literally: every spelling needs a rule of its own.
func Forms(host string) []string {
	name, port, hasPort := strings.Cut(host, ":")
	forms := []string{
		"http://" + host + "/",
		"https://git@" + host + "/",
		"https://x-access-token@" + host + "/",
		"git://" + host + "/",
		// The scp form has no port, and ssh has one of its own: both name the bare host.
		"git@" + name + ":",
		name + ":",
		"ssh://git@" + name + "/",
		"ssh://" + name + "/",
		"ssh://git@" + name + ":22/",
		"ssh://" + name + ":22/",
		"git+ssh://git@" + name + "/",
		"git+ssh://" + name + "/",
		"ssh+git://git@" + name + "/",
		"ssh+git://" + name + "/",
	}
	if !hasPort || port == "443" {
		forms = append(forms, "https://"+name+":443/", "https://"+name+"./")
	}
	if !hasPort {
		forms = append(forms, "http://"+name+":80/")
	}
	if name == "github.com" {
		forms = append(forms,
			"https://www.github.com/", "http://www.github.com/",
			"https://GitHub.com/", "git@GitHub.com:", "ssh://git@GitHub.com/",
			"git@ssh.github.com:", "ssh.github.com:",
			"ssh://git@ssh.github.com/", "ssh://ssh.github.com/",
			"ssh://git@ssh.github.com:443/", "ssh://ssh.github.com:443/",
		)
	}
	return forms
}

func (c *Config) validate() error {
	var errs []error
	for field, text := range map[string]string{"gateway": c.Gateway, "proxy": c.Proxy} {
		u, err := url.Parse(text)
		if text == "" && field == "gateway" {
			continue
		}
		if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil && field != "proxy" || strings.ContainsAny(text, "\"\\\n ") {
			if text = "?"; err == nil {
				text = u.Redacted() // it may hold what the proxy asks for
			}
			errs = append(errs, fmt.Errorf("write git configuration: %s %q is not a plain http URL", field, text))
		}
	}
	if c.Helper != "" && (c.Helper[0] != '/' || !plain(c.Helper)) {
		errs = append(errs, fmt.Errorf("write git configuration: helper %q is not a path that needs no quoting", c.Helper))
	}
	if c.Helper != "" && !plain(strings.TrimPrefix(c.Gateway, "http:")) {
		// It becomes a word of the helper's command.
		errs = append(errs, fmt.Errorf("write git configuration: gateway %q needs quoting", c.Gateway))
	}
	if c.Gateway != "" && !strings.HasSuffix(c.Gateway, "/") {
		errs = append(errs, fmt.Errorf("write git configuration: gateway %q does not end in /", c.Gateway))
	}
	for _, host := range c.Forges {
		if !isHost(host) {
			errs = append(errs, fmt.Errorf("write git configuration: forge %q is not a host in lower case", host))
		}
	}
	for _, text := range append([]string{c.UserName, c.UserEmail, c.Empty}, c.Safe...) {
		if strings.ContainsRune(text, 0) {
			errs = append(errs, fmt.Errorf("write git configuration: %q contains a zero byte", text))
		}
	}
	return errors.Join(errs...)
}

// plain reports whether a shell takes a command's words as they are.
func plain(text string) bool {
	return strings.Trim(text, "/ ._-+:0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// isHost takes a name or IPv4 address with an optional port. It becomes a part of
// rules that decide where pushes go, so nothing that could end a word is in it.
func isHost(text string) bool {
	name, port, hasPort := strings.Cut(text, ":")
	if hasPort && (port == "" || strings.Trim(port, "0123456789") != "") {
		return false
	}
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// How git-config(1) quotes the names of sections and values.
var (
	quoteName  = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	quoteValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`)
)

// writer writes the syntax of git-config(1).
type writer struct {
	strings.Builder
	pending string // a section that has no value yet
}

func (w *writer) section(name, sub string) {
	w.pending = "[" + name + "]\n"
	if sub != "" {
		w.pending = "[" + name + " \"" + quoteName.Replace(sub) + "\"]\n"
	}
}

// set writes one value; an empty one is left out, and so is a section without any.
func (w *writer) set(key, value string) {
	if value != "" {
		w.line(key, value)
	}
}

func (w *writer) empty(key string) { w.line(key, "") }

func (w *writer) line(key, value string) {
	w.WriteString(w.pending)
	w.pending = ""
	w.WriteString("\t" + key + " = \"" + quoteValue.Replace(value) + "\"\n")
}
