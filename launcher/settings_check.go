package main

import (
	"postern/caddy-modules/session/lease"
	"postern/launcher/ports"
)

// check finds what only the appliance, or the start, would otherwise find: there nobody
// knows any more which file said it. doctor reads settings and starts no run.
func (r *reader) check(s *settings) {
	const id = "settings" // the spec is looked at and not sent
	for key, spec := range map[string]lease.Spec{
		"repo":  {ID: id, Repository: s.Repo},
		"link":  {ID: id, LinkedRepositories: s.Links},
		"allow": {ID: id, EgressAllowlist: s.Allow},
	} {
		if err := spec.Validate(); err != nil {
			r.fail(key, err)
		}
	}
	for _, text := range s.Publish {
		if _, err := ports.ParsePublish(text); err != nil {
			r.fail("publish", err)
		}
	}
	for _, text := range s.Grants {
		if _, err := ports.ParseGrant(text); err != nil {
			r.fail("host_port", err)
		}
	}
}
