package sandbox

import "strings"

// ExitRefused is the exit status of a launcher that started nothing.
const ExitRefused = 125

// Reason is why nothing was started. The values are stable: programs branch on them.
type Reason string

// Reasons of the host.
const (
	ReasonUnsupportedOS   Reason = "unsupported_os"
	ReasonUnsupportedArch Reason = "unsupported_arch"
	ReasonSeatbelt        Reason = "seatbelt_unavailable"
	ReasonProfile         Reason = "profile_refused" // Seatbelt does not take the profile
	ReasonWSL1            Reason = "wsl1"

	ReasonMissing   Reason = "bwrap_missing"
	ReasonUntrusted Reason = "bwrap_untrusted" // somebody else may write to it
	ReasonSetuid    Reason = "bwrap_setuid"
	ReasonElevated  Reason = "launcher_setuid"
	ReasonTooOld    Reason = "bwrap_too_old"

	ReasonNamespaces Reason = "userns_denied"     // the kernel or a container forbids namespaces
	ReasonExhausted  Reason = "userns_exhausted"  // max_*_namespaces is reached or zero
	ReasonAppArmor   Reason = "userns_apparmor"   // Ubuntu's restriction of user namespaces
	ReasonProc       Reason = "proc_denied"       // a container that masks /proc
	ReasonSeccomp    Reason = "seccomp_denied"    // the kernel takes no filter
	ReasonMount      Reason = "mount_failed"      // a planned mount could not be made
	ReasonTimeout    Reason = "start_timeout"     // no sign of life in time
	ReasonStart      Reason = "start_failed"      // bubblewrap failed in a way we do not know
	ReasonChanged    Reason = "mounts_changed"    // the view is not the one that was planned
	ReasonProtocol   Reason = "protocol_violated" // the inside of the sandbox spoke nonsense
	ReasonTerminal   Reason = "tty_unavailable"   // no pseudo-terminal can be made inside
)

// Reasons of the request.
const (
	ReasonNameGlobs Reason = "name_globs"       // names cannot be guarded here
	ReasonGlob      Reason = "glob_invalid"     // a pattern that says nothing
	ReasonTooMany   Reason = "too_many_denials" // more than the kernel takes mounts
	ReasonShared    Reason = "folder_shared"    // another run sees it on other terms
	ReasonBind      Reason = "bind_refused"     // a folder that must not be shown
	ReasonBindGone  Reason = "bind_missing"     // a folder that is not there
	ReasonDir       Reason = "dir_not_visible"  // the working directory is in no bind
	ReasonStdio     Reason = "stdio_refused"    // a standard descriptor that leads out
)

// Refusal says that nothing was started, and why. Cure is what the reader can do.
type Refusal struct { //nolint:errname // it is read as what it is: a refusal
	Reason Reason
	Detail string
	Cure   string
	Err    error // what was met on the way; may be nil
}

// Error implements error: one line, cure last.
func (r *Refusal) Error() string {
	var b strings.Builder
	b.WriteString(r.Detail)
	if r.Err != nil {
		b.WriteString(": ")
		b.WriteString(r.Err.Error())
	}
	if r.Cure != "" {
		b.WriteString("; ")
		b.WriteString(r.Cure)
	}
	b.WriteString(" [")
	b.WriteString(string(r.Reason))
	b.WriteByte(']')
	return b.String()
}

// Unwrap gives what was met on the way.
func (r *Refusal) Unwrap() error { return r.Err }
