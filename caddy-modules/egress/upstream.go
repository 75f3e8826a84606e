package egress

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"postern/caddy-modules/proxy"
)

// Upstream is another proxy that every allowed connection of a session goes through,
// for networks that let nothing else out. It changes no decision: names are looked up
// and addresses judged first, and it is told the address.
type Upstream struct {
	// http://HOST[:PORT] or socks5://HOST[:PORT].
	URL string `json:"url"`

	// A file with user:password on one line, read for each connection. Default: none.
	AuthFile string `json:"auth_file,omitempty"`

	// What is connected to directly: rules without flags, for every port where they
	// name none. This machine always is. Default: none.
	NoProxy []Rule `json:"no_proxy,omitempty"`

	// Tell it names and let it look them up. Then nobody judges the address that it
	// goes to, and rules with the flag private are refused. Default: false.
	ByName bool `json:"by_name,omitempty"`
}

// maxSecret bounds a file of credentials, in bytes.
const maxSecret = 4 << 10

// parent compiles it; nil for none.
func (u *Upstream) parent() (*proxy.Parent, error) {
	if u == nil {
		return nil, nil //nolint:nilnil // no parent is the common case, and no error
	}
	direct, err := compileRules(u.NoProxy, "upstream.no_proxy")
	if err != nil {
		return nil, err
	}
	var secret func() (string, error)
	if u.AuthFile != "" {
		secret = func() (string, error) { return readSecret(u.AuthFile) }
	}
	p, err := proxy.NewParent(u.URL, secret, direct, u.ByName)
	if err != nil {
		return nil, fmt.Errorf("configure upstream: %w", err)
	}
	return p, nil
}

// checkSecret finds a file that cannot be read while somebody looks, and not at the
// first request.
func (u *Upstream) checkSecret() error {
	if u == nil || u.AuthFile == "" {
		return nil
	}
	_, err := readSecret(u.AuthFile)
	return err
}

// readSecret never tells what is in the file.
func readSecret(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read auth_file of upstream: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read auth_file of upstream: %w", err)
	case len(text) > maxSecret:
		return "", fmt.Errorf("read auth_file of upstream: %s is longer than %d bytes; it holds user:password on one line", name, maxSecret)
	case len(text) == 0:
		return "", fmt.Errorf("read auth_file of upstream: %s is empty; it holds user:password on one line", name)
	}
	return string(text), nil
}

// upstream reads the option; the syntax is with App.UnmarshalCaddyfile.
func (p *parser) upstream() error {
	begin := p.Token()
	u := new(Upstream)
	p.app.Upstream = u
	if !p.AllArgs(&u.URL) {
		return Want(p.Dispenser, "upstream http://HOST:PORT|socks5://HOST:PORT [{ … }]")
	}
	seen := map[string]bool{}
	_, err := Block(p.Dispenser, "upstream", func() error {
		name := p.Val()
		if seen[name] && name != "no_proxy" {
			return p.Errf("%s is given twice", name)
		}
		seen[name] = true
		switch name {
		case "auth_file":
			if !p.AllArgs(&u.AuthFile) || u.AuthFile == "" {
				return Want(p.Dispenser, "auth_file FILE")
			}
			if !filepath.IsAbs(u.AuthFile) {
				return p.Errf("auth_file %q: name an absolute path", u.AuthFile)
			}
			return nil
		case "no_proxy":
			if err := p.rules(name, &u.NoProxy, nil); err != nil {
				return err
			}
			if slices.ContainsFunc(u.NoProxy, func(r Rule) bool { return r.Private || r.TCP || r.Scheme != "" }) {
				return p.Errf("no_proxy takes hosts and ports, and no flags")
			}
			return nil
		case "by":
			var what string
			if !p.AllArgs(&what) || what != "name" && what != "address" {
				return Want(p.Dispenser, "by name|address")
			}
			u.ByName = what == "name"
			return nil
		}
		return p.Errf("unrecognized upstream option %q; want auth_file, no_proxy or by", name)
	})
	if err != nil {
		return err
	}
	if _, err := u.parent(); err != nil {
		return At(begin, err)
	}
	return nil
}
