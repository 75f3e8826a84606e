package main

import (
	"errors"
	"fmt"
	"slices"

	"postern/launcher/sandbox"
	"postern/launcher/sandbox/seatbelt"
)

// mac reads what only macOS can give. The settings are the same file on every system,
// so they are read, and checked, on every one.
func (r *reader) mac() sandbox.Mac {
	m := sandbox.Mac{DNS: r.text("mac_dns"), Open: r.list("mac_open"), ExecGrants: r.paths("exec_grant"), Dangerous: r.paths("exec_deny")}
	switch home := r.text("mac_home"); home {
	case "", "wide":
	case "narrow":
		m.Narrow = true
	default:
		r.fail("mac_home", fmt.Errorf("%q is neither wide nor narrow", home))
	}
	if _, err := sandbox.ParseDNS(m.DNS); err != nil {
		r.fail("mac_dns", err)
	}
	for _, name := range m.Open {
		if !slices.Contains(seatbelt.Hardenings(), name) {
			r.fail("mac_open", fmt.Errorf("%q is none of %v", name, seatbelt.Hardenings()))
		}
	}
	for _, path := range slices.Concat(m.ExecGrants, m.Dangerous) {
		if sandbox.IsGlob(path) {
			r.fail("exec_grant", errors.New("patterns are not possible there, nor in exec_deny"))
		}
	}
	return m
}
