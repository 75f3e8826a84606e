package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/launcher/backend"
	"postern/launcher/sandbox"
)

// SPEC 6, 8 to 12, 27: which backend a run is to have.
func TestChoose(t *testing.T) {
	const microvm, native, none = backend.MicroVM, backend.Native, backend.None
	for _, tc := range []struct {
		name             string
		off              bool
		named, preferred backend.Backend
		want             backend.Backend
		strict           bool
		line, reason     string
	}{
		{"nothing said", false, "", native, native, false, "", ""},
		{"native by name", false, native, native, native, true, "", ""},
		{"none by name", false, none, native, none, true, "", ""},
		{"none preferred", false, "", none, none, true, "", ""},
		{"microvm preferred steps down and says so", false, "", microvm, native, false, "steps down to native", ""},
		{"microvm by name is refused", false, microvm, native, "", false, "", "backend_cannot_wrap"},
		{"microvm by name is refused, preferred or not", false, microvm, microvm, "", false, "", "backend_cannot_wrap"},
		{"native by name, microvm preferred", false, native, microvm, native, true, "", ""},
		{"off", true, "", native, none, true, "agent sandbox DISABLED by --sandbox off", ""},
		{"off beats a name", true, native, native, none, true, "agent sandbox DISABLED by --sandbox off", ""},
		{"off beats microvm", true, microvm, native, none, true, "agent sandbox DISABLED by --sandbox off", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := choose(tc.off, tc.named, tc.preferred)
			if tc.reason != "" {
				if r, ok := errors.AsType[*sandbox.Refusal](err); !ok || string(r.Reason) != tc.reason {
					t.Fatalf("%+v, %v", c, err)
				}
				return
			}
			if err != nil || c.Backend != tc.want || c.Strict != tc.strict || !strings.Contains(c.Line, tc.line) || (c.Line == "") != (tc.line == "") {
				t.Errorf("%+v, %v", c, err)
			}
			if !c.Backend.Wraps() {
				t.Errorf("%s wraps nothing", c.Backend)
			}
		})
	}
}

// Only a host without a sandbox steps down: what is wrong with the request, or with a
// tool that is there, is refused.
func TestMayStepDown(t *testing.T) {
	for reason, want := range map[sandbox.Reason]bool{
		sandbox.ReasonMissing: true, sandbox.ReasonNamespaces: true, sandbox.ReasonAppArmor: true, sandbox.ReasonUnsupportedOS: true,
		sandbox.ReasonExhausted: false, sandbox.ReasonSeatbelt: false, sandbox.ReasonProfile: false,
		sandbox.ReasonNameGlobs: false, sandbox.ReasonBind: false, sandbox.ReasonDir: false, sandbox.ReasonUntrusted: false, sandbox.ReasonSetuid: false,
		sandbox.ReasonChanged: false, sandbox.ReasonMount: false, sandbox.ReasonProtocol: false, sandbox.ReasonTimeout: false, sandbox.ReasonStart: false,
		reasonAppliance: false, reasonRefused: false, reasonUsage: false, reasonSpec: false,
	} {
		if got := mayStepDown(&sandbox.Refusal{Reason: reason}); got != want {
			t.Errorf("%s: %t, want %t", reason, got, want)
		}
	}
	if mayStepDown(nil) || mayStepDown(errors.New("x")) {
		t.Error("an error without a reason steps down")
	}
}

// A limit of zero is a host's nature; one that is reached is not.
func TestNoNamespaces(t *testing.T) {
	dir := t.TempDir()
	limit := func(kind, text string) {
		if err := os.WriteFile(filepath.Join(dir, "max_"+kind+"_namespaces"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if noNamespaces(dir) {
		t.Error("unknown limits are taken for none left")
	}
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
		limit(kind, "1000\n")
	}
	if noNamespaces(dir) {
		t.Error("a limit of 1000 is taken for zero")
	}
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
		limit(kind, "0\n")
		if !noNamespaces(dir) {
			t.Errorf("no %s namespaces at all are not noticed", kind)
		}
		limit(kind, "1000\n")
	}
}

// SPEC 22.
func TestSandboxOff(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		off  bool
	}{
		{"nothing", nil, nil, false},
		{"on", []string{"--sandbox", "on"}, nil, false},
		{"off", []string{"--sandbox", "off"}, nil, true},
		{"OFF", []string{"--sandbox=OFF"}, nil, true},
		{"Off", []string{"--sandbox", "Off"}, nil, true},
		{"bare", []string{"--sandbox"}, nil, false},
		{"bare, before a flag", []string{"--sandbox", "--quiet"}, nil, false},
		{"anything else", []string{"--sandbox", "maybe"}, nil, false},
		{"false is on", []string{"--sandbox=false"}, nil, false},
		{"empty is on", []string{"--sandbox="}, map[string]string{"POSTERN_SANDBOX": "off"}, false},
		{"environment", nil, map[string]string{"POSTERN_SANDBOX": "off"}, true},
		{"environment, any case", nil, map[string]string{"POSTERN_SANDBOX": " oFF "}, true},
		{"environment, anything else", nil, map[string]string{"POSTERN_SANDBOX": "no"}, false},
		{"alias", nil, map[string]string{"CC_SERVER_SANDBOX": "Off"}, true},
		{"the name before the alias", nil, map[string]string{"POSTERN_SANDBOX": "on", "CC_SERVER_SANDBOX": "off"}, false},
		{"the flag before both", []string{"--sandbox", "on"}, map[string]string{"POSTERN_SANDBOX": "off", "CC_SERVER_SANDBOX": "off"}, false},
		{"the bare flag before both", []string{"--sandbox"}, map[string]string{"POSTERN_SANDBOX": "off"}, false},
		{"off by the flag, on by the environment", []string{"--sandbox", "off"}, map[string]string{"POSTERN_SANDBOX": "on"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, name := range []string{"POSTERN_SANDBOX", "CC_SERVER_SANDBOX"} {
				t.Setenv(name, tc.env[name])
			}
			spec := strings.NewReader(`{"sessionId":"s","workspaceId":"w","bindMounts":[{"hostPath":"/a"}]}`)
			args := slices.Concat([]string{"--spec", "-"}, tc.args, []string{"--", "off"})
			r, err := parseExec(args, spec, nil)
			if err != nil || r.Off != tc.off || !slices.Equal(r.Argv, []string{"off"}) {
				t.Errorf("%+v, %v, want off %t", r, err, tc.off)
			}
		})
	}
}
