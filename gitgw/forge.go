package gitgw

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Forge is one host that repositories may name, with the addresses behind it.
// GitHub Enterprise is a Forge with other URLs.
type Forge struct {
	// Host is what repository names begin with, as in github.com.
	Host string
	// API is the base of the REST API, with a slash at the end.
	API *url.URL
	// Git is the base to which OWNER/NAME.git is joined.
	Git *url.URL
}

// NewForge makes a forge from its host and two base URLs. Where they are empty,
// github.com gets https://api.github.com/ and https://github.com/, and any
// other host GitHub Enterprise Server's https://HOST/api/v3/ and https://HOST/.
func NewForge(host, api, git string) (Forge, error) {
	host = lower(host)
	if err := checkHost(host); err != nil {
		return Forge{}, fmt.Errorf("configure forge: %w", err)
	}
	if api == "" {
		api = "https://" + host + "/api/v3/"
		if host == "github.com" {
			api = "https://api.github.com/"
		}
	}
	if git == "" {
		git = "https://" + host + "/"
	}
	f := Forge{Host: host}
	for _, base := range []struct {
		what, text string
		to         **url.URL
	}{{"API", api, &f.API}, {"git", git, &f.Git}} {
		u, err := url.Parse(base.text)
		if err != nil {
			// The text of a *url.Error holds the URL, which may hold a password.
			if inner, ok := errors.AsType[*url.Error](err); ok {
				err = inner.Err
			}
			return Forge{}, fmt.Errorf("configure forge %s: parse %s URL: %w", host, base.what, err)
		}
		if (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return Forge{}, fmt.Errorf("configure forge %s: %s URL %s: want http(s)://HOST/PATH/ and no user or query", host, base.what, u.Redacted())
		}
		if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return Forge{}, fmt.Errorf("configure forge %s: %s URL %s: %q is no port; want 1 to 65535", host, base.what, u.Redacted(), port)
			}
		}
		*base.to = u.JoinPath("/")
	}
	return f, nil
}

// GitHub is github.com.
func GitHub() Forge {
	return Forge{
		Host: "github.com",
		API:  &url.URL{Scheme: "https", Host: "api.github.com", Path: "/"},
		Git:  &url.URL{Scheme: "https", Host: "github.com", Path: "/"},
	}
}

// repoURL is the address of one of a repository's services. It is built from
// the canonical name alone: nothing of the client's path reaches a forge.
func (f Forge) repoURL(repo Repo, service ...string) *url.URL {
	return f.Git.JoinPath(append([]string{repo.Owner(), repo.Name() + ".git"}, service...)...)
}
