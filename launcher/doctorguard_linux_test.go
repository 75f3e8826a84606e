package main

import (
	"slices"
	"strings"
	"testing"

	"postern/launcher/nameguard"
	"postern/launcher/sandbox"
)

// doctor says whether names would be guarded, and fails where a run would be refused for want
// of it.
func TestDoctorSaysWhetherNamesAreGuarded(t *testing.T) {
	can, cannot := sandbox.Probe{Names: true}, sandbox.Probe{NamesDetail: "the kernel gives no Landlock"}
	rules := []nameguard.Rule{{Text: "*.key", Source: "deny_name of l.yaml"}}
	for _, tc := range []struct {
		probe sandbox.Probe
		s     settings
		says  string
	}{
		{can, settings{}, "guard      on     no run makes at the top of its folders what tools outside act on"},
		{can, settings{Guard: sandbox.GuardOn, Mode: sandbox.ModeChat}, "guard      on     "},
		{can, settings{DenyNames: rules, Protect: []string{"/w/f"}}, "guard      on     no run makes these, nor at any depth what tools outside act on: *.key (deny_name of l.yaml)"},
		{can, settings{Guard: sandbox.GuardOff}, "guard      off    the settings say guard_names: off: only what is there is kept"},
		{can, settings{Nested: true}, "guard      off    the settings say nested_sandbox: on: only what is there is kept"},
		{can, settings{Mode: sandbox.ModeReview, DenyNames: rules, Guard: sandbox.GuardOff}, "guard      off    the settings say mode: review"},
		{cannot, settings{}, "guard      off    the kernel gives no Landlock: only what is there is kept"},
		{cannot, settings{Guard: sandbox.GuardOn}, "guard      FAILS  the kernel gives no Landlock; a run is refused, for the settings say guard_names: on"},
		{cannot, settings{DenyNames: rules}, "guard      FAILS  the kernel gives no Landlock; a run is refused, for names are to be forbidden: *.key (deny_name of l.yaml)"},
		{can, settings{Protect: []string{"*.key"}, Guard: sandbox.GuardOff}, "guard      FAILS  the settings say guard_names: off; a run is refused, for names are to be forbidden: *.key (protect)"},
		{can, settings{Guard: sandbox.GuardOn, Nested: true}, "guard      FAILS  the settings say nested_sandbox: on; a run is refused"},
	} {
		g := guards(&tc.probe, &tc.s)
		var b strings.Builder
		g.print(&b)
		if !strings.HasPrefix(b.String(), tc.says) || g.OK == strings.Contains(tc.says, "FAILS") {
			t.Errorf("%+v: got %q, want %q", tc.s, b.String(), tc.says)
		}
	}
}

// What doctor says of the settings a run does.
func TestDoctorRefusesAsRunDoes(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	env := w.env
	for _, tc := range []struct {
		setting []string
		code    int
	}{
		{nil, 0},
		{[]string{"POSTERN_GUARD_NAMES=off"}, 0},
		{[]string{"POSTERN_GUARD_NAMES=off", "POSTERN_DENY_NAME=*.key"}, 1},
		{[]string{"POSTERN_NESTED_SANDBOX=on", "POSTERN_DENY_NAME=*.key"}, 1},
		{[]string{"POSTERN_MODE=review", "POSTERN_NESTED_SANDBOX=on", "POSTERN_DENY_NAME=*.key"}, 0},
	} {
		w.env = slices.Concat(env, tc.setting)
		doctor, run := w.postern("doctor"), w.postern("run", "--", "true")
		if doctor.code != tc.code || (run.code == 0) != (tc.code == 0) || !strings.Contains(doctor.stdout, "\nguard      ") {
			t.Errorf("%v: doctor %d, run %d\n%s%s", tc.setting, doctor.code, run.code, doctor.stdout, run.stderr)
		}
	}
}
