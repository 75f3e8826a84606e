package sandbox

import "strings"

// Names that a run may not change inside a folder it may write (SPEC section 2,
// and the further ways git has of redirecting its configuration). Each of them is
// read or executed later, by the user's own tools and outside any sandbox.
var (
	protectedFiles = set(
		".gitconfig", ".gitmodules",
		".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile",
		".ripgreprc", ".mcp.json", ".npmrc", ".netrc", ".git-credentials",
	)
	protectedDirs = set(".vscode", ".idea", ".ssh", ".aws", ".kube", ".docker")

	// Below .claude only these are protected; sessions and caches are not.
	protectedClaude = set("commands", "agents", "hooks", "settings.json", "settings.local.json")
)

// scanDepth is how far below a root names are looked for (SPEC section 2). Git
// directories and sockets are looked for at any depth.
const scanDepth = 3

// skippedDirs are not searched: packages unpacked there bring such names as a
// matter of course, by the thousand.
var skippedDirs = set("node_modules")

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
