package sandbox

import (
	"os"
	"strings"
)

// isWSL1 reports whether this is the first Windows subsystem, which has Linux's
// system calls and no namespaces. The second is a Linux kernel and says so in lower
// case.
func isWSL1() bool {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return err == nil && wsl1(string(release))
}

func wsl1(release string) bool {
	return strings.Contains(release, "Microsoft") && !strings.Contains(release, "WSL2")
}
