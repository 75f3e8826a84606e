package sandbox

import (
	"os"

	"postern/launcher/backend"
)

// isWSL1 reports whether this is the first Windows subsystem, which has Linux's
// system calls and no namespaces.
func isWSL1() bool {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return err == nil && backend.WSL1(string(release))
}
