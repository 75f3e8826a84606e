package backend

import "strings"

// Tool is what native means on one system.
type Tool string

// The tools; the zero value is none.
const (
	Seatbelt   Tool = "seatbelt"
	Bubblewrap Tool = "bubblewrap"
)

// NativeTool is the tool of a system, given as Go names it and, on Linux, the text of
// /proc/sys/kernel/osrelease (SPEC 5). The first Windows subsystem has Linux's system
// calls and no namespaces, hence nothing to wrap with; the second is a Linux.
func NativeTool(goos, osrelease string) Tool {
	switch {
	case goos == "darwin":
		return Seatbelt
	case goos == "linux" && !WSL1(osrelease):
		return Bubblewrap
	}
	return ""
}

// WSL reports whether the kernel is one of Microsoft's for Linux programs on Windows.
func WSL(osrelease string) bool {
	text := strings.ToLower(osrelease)
	return strings.Contains(text, "microsoft") || strings.Contains(text, "wsl")
}

// WSL1 reports whether it is the first kind. The second calls itself
// microsoft-standard, or WSL2, or both.
func WSL1(osrelease string) bool {
	text := strings.ToLower(osrelease)
	return WSL(text) && !strings.Contains(text, "wsl2") && !strings.Contains(text, "microsoft-standard")
}

// Note says what the tool gives, and what it does not (SPEC 14, 16, 17, 19).
func (t Tool) Note(goos string) string {
	const worth = ": isolation at the level of namespaces, no kernel boundary"
	switch t {
	case Seatbelt:
		return "sandbox-exec (Seatbelt)" + worth
	case Bubblewrap:
		return "bubblewrap" + worth
	}
	return "no native sandbox is offered on " + goos
}

// StartLine is the one line that a server says about its sandbox as it starts
// (SPEC 20). Off beats everything else: what is there does not matter then.
func StartLine(off, available bool, note, hint string) string {
	text, more := "no OS-native agent sandbox on this host", hint
	switch {
	case off:
		return "agent sandbox DISABLED by --sandbox off"
	case available:
		text, more = "agent sandbox ON", note
	}
	if more == "" {
		return text
	}
	return text + ": " + more
}
