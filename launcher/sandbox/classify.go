package sandbox

import "strings"

// symptom is a text of bubblewrap's stderr and what it means. The texts are those of
// versions 0.4 to 0.11; the first that occurs decides, so the special come before
// the general.
type symptom struct {
	texts  []string
	reason Reason
	detail string
	cure   string
}

var symptoms = []symptom{
	{
		[]string{"Exceeded maximum number of arguments", "more mounts than bubblewrap takes"},
		ReasonTooMany,
		"the run needs more mounts than can be made here",
		"bind smaller folders, or hide folders instead of the files in them",
	},
	{
		[]string{"loopback: Failed RTM_NEWADDR: Operation not permitted", "loopback: Failed RTM_NEWLINK: Operation not permitted", "setting up uid map: Permission denied", "setting up gid map: Permission denied"},
		ReasonAppArmor,
		"AppArmor lets programs make user namespaces, and then takes the rights inside away (Ubuntu 23.10 and later)",
		"give bwrap a profile that permits userns (apt-get install apparmor-profiles, then enable bwrap-userns-restrict), or: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
	},
	{
		[]string{"(ENOSPC)", "namespace failed: No space left on device"},
		ReasonExhausted,
		"the limit on namespaces is reached, or zero",
		"raise user.max_user_namespaces, user.max_net_namespaces and user.max_pid_namespaces with sysctl",
	},
	{
		[]string{"No permissions to create", "Creating new namespace failed", "kernel does not allow non-privileged user namespaces", "setting up uid map: Operation not permitted", "unshare user ns", "creation of new user namespaces was not disabled"},
		ReasonNamespaces,
		"the kernel, or the container this runs in, forbids user namespaces",
		"sudo sysctl kernel.unprivileged_userns_clone=1; in a container, start it with a seccomp profile that permits clone and unshare",
	},
	{
		[]string{"Can't mount proc"},
		ReasonProc,
		"/proc cannot be mounted: the container this runs in masks its own",
		"start the container with --security-opt systempaths=unconfined (Docker) or procMount: Unmasked (Kubernetes)",
	},
	{
		[]string{"Unknown option", "unknown cap"},
		ReasonTooOld,
		"this bubblewrap lacks an option we need",
		"install version 0.8 or later",
	},
	{
		[]string{"Can't find source path", "Can't get type of source", "Can't create file at", "Can't mkdir", "Can't bind mount", "Can't mount tmpfs", "Can't make symlink", "Can't remount readonly", "Can't make bind mount", "Unable to mount source"},
		ReasonMount,
		"a mount of the plan could not be made",
		"",
	},
	{
		[]string{"seccomp", "PR_SET_SECCOMP"},
		ReasonSeccomp,
		"the kernel takes no system call filter",
		"use a kernel with CONFIG_SECCOMP_FILTER",
	},
}

// usedUp are the errors of the system that say that something is used up at the moment,
// whatever it was that could not be made. A host is not to be taken for one without
// sandboxes for that.
var usedUp = []string{
	": Resource temporarily unavailable", ": Cannot allocate memory", ": No space left on device", ": Too many open files", ": Too many open files in system",
}

// exhausted replaces a reason that lies in the host's nature where it was a shortage.
func (r *Refusal) exhausted(line string) {
	switch r.Reason {
	case ReasonAppArmor, ReasonNamespaces, ReasonProc, ReasonSeccomp:
	default:
		return
	}
	for _, text := range usedUp {
		if strings.HasSuffix(line, text) {
			r.Reason, r.Detail = ReasonExhausted, "this user's processes, or the memory or the namespaces of this host, are used up"
			r.Cure = "end what uses them, other runs among it, or raise the limits (ulimit -u, sysctl user.max_user_namespaces)"
		}
	}
}

// tryBwrap is what a person can type where bubblewrap fails in a way we do not know.
const tryBwrap = "bwrap --unshare-all --ro-bind / / true"

// classify turns what bubblewrap wrote before it failed into a refusal.
func classify(stderr string) *Refusal {
	said := strings.TrimSpace(stderr)
	r := &Refusal{Reason: ReasonStart, Detail: "bubblewrap could not start the sandbox", Cure: "see whether it works by itself, and reinstall it if not: " + tryBwrap}
	for _, s := range symptoms {
		for _, text := range s.texts {
			if strings.Contains(said, text) {
				r = &Refusal{Reason: s.reason, Detail: s.detail, Cure: s.cure}
				break
			}
		}
		if r.Reason != ReasonStart {
			break
		}
	}
	r.exhausted(lastLine(said))
	if said != "" {
		r.Detail += ": " + lastLine(said)
	}
	return r
}

// lastLine is what a program said last, cut to a length that fits a line of output.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	const limit = 300
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return text
}
