package sandbox

import (
	"os/user"
	"path/filepath"
	"slices"
)

// secrets are what of a home no run reads (SPEC section 2): keys, tokens, cookies of
// command line tools.
var secrets = []string{
	".ssh", ".aws", ".gnupg", ".config/gh", ".kube", ".docker", ".netrc", ".git-credentials", ".pypirc",
	".cargo/credentials", ".cargo/credentials.toml", ".config/gcloud", "Library/Keychains",
}

// accountHome is the home that the accounts of this host name for the user, or "".
func accountHome() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// homes is where the user's home may be: what $HOME says and what the accounts say. A
// variable alone could be missing (cron, env -i) or led astray, and with it everything
// that is refused for the sake of the home.
func homes(given string, account func() string) []string {
	var out []string
	for _, home := range []string{given, account()} {
		home = filepath.Clean(home)
		if !filepath.IsAbs(home) || home == "/" {
			continue
		}
		out = append(out, home)
		if target, err := filepath.EvalSymlinks(home); err == nil && target != "/" {
			out = append(out, target)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
