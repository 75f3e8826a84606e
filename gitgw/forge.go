package gitgw

import (
	"fmt"
	"net/url"
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
			return Forge{}, fmt.Errorf("configure forge %s: parse %s URL: %w", host, base.what, err)
		}
		if (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return Forge{}, fmt.Errorf("configure forge %s: %s URL %s: want http(s)://HOST/PATH/ and no user or query", host, base.what, u.Redacted())
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
