package main

import (
	"errors"
	"reflect"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/nameguard"
	"postern/launcher/sandbox"
	"postern/launcher/spec"
)

// Every field of a spec, and where it goes.
func TestTranslate(t *testing.T) {
	on, off := true, false
	least := spec.Default()
	least.SessionID, least.WorkspaceID = "s", "w"
	full := spec.Spec{
		SessionID: "s", WorkspaceID: "w", AgentID: "a",
		BindMounts:      []spec.BindMount{{HostPath: "/a"}, {HostPath: "/b", GuestPath: "/b", ReadOnly: true}},
		EgressAllowlist: []string{"x.example"}, GuestWorkdir: "/a/sub", Mode: spec.Plan,
		ProtectedPaths: []string{"/p", "**/.env", "/q/?"}, RunnerStateDirs: []string{"/r"}, ExecGrantRoots: []string{"/e"},
	}
	for _, tc := range []struct {
		name    string
		spec    spec.Spec
		profile sandbox.Profile
		session lease.Spec
	}{
		{"defaults", least, sandbox.Profile{Mode: sandbox.ModeChat, NameSecrets: true}, lease.Spec{ID: "s", Workspace: "w", NetworkEnabled: &on}},
		{
			"everything", full,
			sandbox.Profile{
				Binds: []sandbox.Bind{{Path: "/a"}, {Path: "/b", ReadOnly: true}}, Dir: "/a/sub", Mode: sandbox.ModePlan,
				Protected: []string{"/p"}, NameGlobs: []nameguard.Rule{{Text: "**/.env", Source: "spec"}, {Text: "/q/?", Source: "spec"}}, NameSecrets: true, StateDirs: []string{"/r"}, Mac: sandbox.Mac{ExecGrants: []string{"/e"}},
			},
			lease.Spec{ID: "s", Workspace: "w", Agent: "a", NetworkEnabled: &off, EgressAllowlist: []string{"x.example"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, s, err := translate(&tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*p, tc.profile) {
				t.Errorf("profile %+v, want %+v", *p, tc.profile)
			}
			if !reflect.DeepEqual(s, tc.session) {
				t.Errorf("session %+v, want %+v", s, tc.session)
			}
		})
	}
	full.BindMounts[1].GuestPath = "/c"
	_, _, err := translate(&full)
	if r, ok := errors.AsType[*sandbox.Refusal](err); !ok || r.Reason != reasonGuestPath {
		t.Errorf("another guestPath: %v", err)
	}
}

// The modes of the two packages are the same words.
func TestModesAreTheSandboxes(t *testing.T) {
	for _, m := range sandbox.Modes() {
		ours, err := spec.ParseMode(string(m))
		if err != nil || ours.Writes() != m.Writes() {
			t.Errorf("%s: %v, writes %t and %t", m, err, ours.Writes(), m.Writes())
		}
	}
}

func TestStartDir(t *testing.T) {
	s := spec.Spec{BindMounts: []spec.BindMount{{HostPath: "/a"}, {HostPath: "/b"}}}
	at := s
	at.GuestWorkdir = "/b/c"
	for _, tc := range []struct {
		spec          *spec.Spec
		workdir, want string
	}{
		{&s, "", "/a"}, {&at, "", "/b/c"}, {&s, "/x", "/x"}, {&at, "/x", "/x"}, {&at, "../d", "/b/d"}, {&s, "sub", "/a/sub"}, {&spec.Spec{}, "", ""},
	} {
		if got := startDir(tc.spec, tc.workdir); got != tc.want {
			t.Errorf("%q in %+v: %q, want %q", tc.workdir, tc.spec, got, tc.want)
		}
	}
}
