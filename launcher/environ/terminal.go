package environ

import (
	"slices"
	"strings"
)

// ownPrefixes and ownNames are what a run has of Postern, or a person of the daemons and
// tokens that a terminal's profile keeps away: their files and sockets are not there, and
// what a variable says must not stand in for them (SPEC 53). The rest of a person's
// environment is the person's.
var (
	ownPrefixes = []string{"POSTERN_", "GIT_CONFIG_", "DBUS_", "SSH_AUTH_SOCK", "SSH_AGENT_", "GPG_AGENT_", "AWS_", "TMUX", "XDG_RUNTIME_DIR"}
	ownNames    = set("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "TICKETING_API_KEY", "STY", "TMPDIR", "TMP", "TEMP", "PWD", "OLDPWD")
)

// Terminal is the environment of a person's shell in a sandbox: the person's own, less
// what the sandbox keeps away.
func Terminal(host []string, home, dir, runtime string) []string {
	out := slices.DeleteFunc(slices.Clone(host), func(kv string) bool {
		name, _, ok := strings.Cut(kv, "=")
		name = strings.ToUpper(name)
		return !ok || ownNames[name] || name == "HOME" ||
			slices.ContainsFunc(ownPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return append(out, "HOME="+home, "PWD="+dir, "XDG_RUNTIME_DIR="+runtime)
}
