package sandbox

import (
	"errors"
	"strings"
	"testing"
)

// What bubblewrap prints, by what stands in its way.
var failures = []struct {
	name   string
	stderr string
	want   Reason
	cure   string
}{
	{"sysctl", "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'.", ReasonNamespaces, "unprivileged_userns_clone"},
	{"no permission", "bwrap: No permissions to creating new namespace, likely because the kernel does not allow non-privileged user namespaces.", ReasonNamespaces, "seccomp"},
	{"seccomp of a container", "bwrap: Creating new namespace failed: Operation not permitted", ReasonNamespaces, "container"},
	{"limits", "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)", ReasonExhausted, "max_user_namespaces"},
	{"processes are used up", "bwrap: Creating new namespace failed: Resource temporarily unavailable", ReasonExhausted, "ulimit -u"},
	{"memory is used up", "bwrap: Creating new namespace failed: Cannot allocate memory", ReasonExhausted, "raise the limits"},
	{"nested namespaces are used up", "bwrap: unshare user ns: No space left on device", ReasonExhausted, "max_user_namespaces"},
	{"no memory for a filter", "bwrap: prctl(PR_SET_SECCOMP): Cannot allocate memory", ReasonExhausted, "raise the limits"},
	{"no memory for /proc", "bwrap: Can't mount proc on /newroot/proc: Cannot allocate memory", ReasonExhausted, "raise the limits"},
	{"a full disk", "bwrap: Can't create file at /newroot/w/x: No space left on device", ReasonMount, ""},
	{"AppArmor, loopback", "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", ReasonAppArmor, "apparmor"},
	{"AppArmor, uid map", "bwrap: setting up uid map: Permission denied", ReasonAppArmor, "apparmor"},
	{"container's /proc", "bwrap: Can't mount proc on /newroot/proc: Operation not permitted", ReasonProc, "unmasked"},
	{"old version, option", "bwrap: Unknown option --disable-userns", ReasonTooOld, "0.8"},
	{"old version, capability", "bwrap: unknown cap: NET_ADMIN", ReasonTooOld, "0.8"},
	{"no filters", "bwrap: prctl(PR_SET_SECCOMP): Invalid argument", ReasonSeccomp, "CONFIG_SECCOMP_FILTER"},
	{"a mount point", "bwrap: Can't create file at /newroot/w/x: Is a directory", ReasonMount, ""},
	{"a source", "bwrap: Can't find source path /w: No such file or directory", ReasonMount, ""},
	{"a source named like another trouble", "bwrap: Can't find source path /w/seccomp: No such file or directory", ReasonMount, ""},
	{"too many mounts", "bwrap: Exceeded maximum number of arguments 9000", ReasonTooMany, "smaller"},
	{"something else", "bwrap: out of cheese", ReasonStart, ""},
	{"nothing", "", ReasonStart, ""},
}

func TestClassify(t *testing.T) {
	for _, tc := range failures {
		t.Run(tc.name, func(t *testing.T) {
			r := classify(tc.stderr + "\n")
			if r.Reason != tc.want {
				t.Errorf("reason %s, want %s", r.Reason, tc.want)
			}
			if !strings.Contains(strings.ToLower(r.Cure), strings.ToLower(tc.cure)) {
				t.Errorf("the cure %q does not speak of %q", r.Cure, tc.cure)
			}
			if tc.stderr != "" && !strings.Contains(r.Detail, strings.TrimPrefix(tc.stderr, "bwrap: ")) {
				t.Errorf("the detail %q does not quote it", r.Detail)
			}
		})
	}
}

func TestRefusalText(t *testing.T) {
	for _, tc := range []struct {
		r    Refusal
		want string
	}{
		{Refusal{Reason: ReasonMissing, Detail: "no bwrap"}, "no bwrap [bwrap_missing]"},
		{Refusal{Reason: ReasonMissing, Detail: "no bwrap", Cure: "install it"}, "no bwrap; install it [bwrap_missing]"},
		{Refusal{Reason: ReasonStart, Detail: "failed", Err: errors.New("why"), Cure: "x"}, "failed: why; x [start_failed]"},
	} {
		if got := tc.r.Error(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestLastLine(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"one", "one"},
		{"one\ntwo", "two"},
		{"one\ntwo\n\n", "two"},
		{"\x1b[31mred\x07", "?[31mred?"},
		{strings.Repeat("x", 1000), strings.Repeat("x", 300) + "…"},
	} {
		if got := lastLine(tc.text); got != tc.want {
			t.Errorf("lastLine(%q) = %q", tc.text, got)
		}
	}
}
