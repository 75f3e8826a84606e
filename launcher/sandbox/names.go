package sandbox

import (
	"strings"

	"postern/launcher/nameguard"
)

// Names that a run may not change inside a folder it may write (SPEC section 2,
// and the further ways git has of redirecting its configuration). The lists are
// nameguard's.
var (
	protectedFiles  = set(nameguard.Files()...)
	protectedDirs   = set(nameguard.Folders()...)
	protectedClaude = set(nameguard.Claude()...)

	// skippedDirs are not searched: packages unpacked there bring such names as a
	// matter of course, by the thousand.
	skippedDirs = set(nameguard.Packages()...)
)

// scanDepth is how far below a root names are looked for (SPEC section 2). Git
// directories and sockets are looked for at any depth.
const scanDepth = 3

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}

// isProtectedName reports whether an entry of that name is protected wherever it
// lies in a root. A directory .env is a Python environment, not a secret. Names are compared with their case folded: on a volume that does
// not tell .ENV from .env they are the same file.
func isProtectedName(name string, dir bool) bool {
	lower := strings.ToLower(name)
	return protectedFiles[lower] || protectedDirs[lower] || !dir && strings.HasPrefix(lower, ".env")
}

// settingsInside lists what stays protected inside a directory that holds a
// runner's state and is writable otherwise (SPEC decision 7).
func settingsInside(name string) bool {
	lower := strings.ToLower(name)
	return lower == "hooks" || strings.HasPrefix(lower, "settings") && strings.HasSuffix(lower, ".json")
}
