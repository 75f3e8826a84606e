package gitgateway

import (
	"fmt"

	"postern/gitgw"
)

// Forge says where a forge is, for one that is not github.com: GitHub
// Enterprise, or a git server with GitHub's App API.
type Forge struct {
	// The host in the names of repositories, as in HOST/OWNER/NAME.
	Host string `json:"host"`

	// The base URL of the REST API. Default: https://HOST/api/v3/, and
	// https://api.github.com/ for github.com.
	API string `json:"api,omitempty"`

	// The base URL of git over HTTP. Default: https://HOST/.
	Git string `json:"git,omitempty"`
}

// compileForges returns the forges of a gateway, github.com where none is named.
func compileForges(forges []Forge) ([]gitgw.Forge, error) {
	if len(forges) == 0 {
		return []gitgw.Forge{gitgw.GitHub()}, nil
	}
	out := make([]gitgw.Forge, 0, len(forges))
	for _, f := range forges {
		c, err := gitgw.NewForge(f.Host, f.API, f.Git)
		if err != nil {
			return nil, err
		}
		if _, twice := findForge(out, c.Host); twice {
			return nil, fmt.Errorf("configure forge %s: it is given twice", c.Host)
		}
		out = append(out, c)
	}
	return out, nil
}

// hostsOf lists the forges' hosts.
func hostsOf(forges []gitgw.Forge) []string {
	hosts := make([]string, 0, len(forges))
	for _, f := range forges {
		hosts = append(hosts, f.Host)
	}
	return hosts
}

func findForge(forges []gitgw.Forge, host string) (gitgw.Forge, bool) {
	for _, f := range forges {
		if f.Host == host {
			return f, true
		}
	}
	return gitgw.Forge{}, false
}
