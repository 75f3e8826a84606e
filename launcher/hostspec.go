package main

import (
	"path"
	"strings"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
	"postern/launcher/spec"
)

// Reasons for which a host's spec is refused before anything is looked at.
const (
	reasonSpec      sandbox.Reason = "spec_invalid"
	reasonGuestPath sandbox.Reason = "guest_path" // a mount that is to be elsewhere inside
)

// translate says in the words of the sandbox and of the appliance what a spec asks for.
// It looks at nothing: the same spec is the same run, whichever way it came (SPEC 24).
// execGrantRoots have no counterpart on Linux, which has no exec lock to lift (SPEC 50).
// Globs of names are handed on, for the sandbox to refuse what it cannot give (SPEC 26).
func translate(s *spec.Spec) (*sandbox.Profile, lease.Spec, error) {
	if err := s.CheckNative(); err != nil {
		return nil, lease.Spec{}, &sandbox.Refusal{Reason: reasonGuestPath, Detail: err.Error(), Cure: "leave guestPath out"}
	}
	p := &sandbox.Profile{
		Dir:       s.GuestWorkdir,
		Mode:      sandbox.Mode(s.Mode),
		Protected: s.Protected(),
		NameGlobs: named("spec", s.Globs()), NameSecrets: true,
		StateDirs: s.RunnerStateDirs,
		Mac:       sandbox.Mac{ExecGrants: s.ExecGrantRoots},
	}
	for _, m := range s.BindMounts {
		p.Binds = append(p.Binds, sandbox.Bind{Path: m.HostPath, ReadOnly: m.ReadOnly})
	}
	network := s.NetworkEnabled
	return p, lease.Spec{
		ID: s.SessionID, NetworkEnabled: &network, EgressAllowlist: s.EgressAllowlist,
		Agent: s.AgentID, Workspace: s.WorkspaceID,
	}, nil
}

// startDir is where a command of the run starts, as far as the spec says: workdir, if it
// is given, else the spec's own, else its first mount (SPEC 76).
func startDir(s *spec.Spec, workdir string) string {
	dir := s.GuestWorkdir
	if dir == "" && len(s.BindMounts) > 0 {
		dir = s.BindMounts[0].HostPath
	}
	switch {
	case workdir == "":
		return dir
	case strings.HasPrefix(workdir, "/"):
		return workdir
	}
	return path.Join(dir, workdir)
}
