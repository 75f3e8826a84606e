package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"postern/launcher/sandbox"
)

// leaseSocket is the appliance's door for launchers, in the run directory.
const leaseSocket = "lease.sock"

// Reasons for which the launcher itself starts nothing, beside those of the sandbox.
const (
	reasonUsage     sandbox.Reason = "usage"
	reasonSettings  sandbox.Reason = "settings_invalid"
	reasonRunDir    sandbox.Reason = "run_dir_untrusted"
	reasonAppliance sandbox.Reason = "appliance_not_running"
	reasonRefused   sandbox.Reason = "appliance_refused"
	reasonLease     sandbox.Reason = "lease_failed"
)

// findRunDir is where the appliance's sockets are, by the same rule as the
// appliance: $POSTERN_RUN, else $XDG_RUNTIME_DIR/postern-UID, else /tmp/postern-UID.
// The directory must be the user's alone: whoever else could write to it could put
// up sockets of his own and have the run's traffic, and its token.
func findRunDir() (string, error) {
	dir := runDirName()
	if !filepath.IsAbs(dir) {
		return "", &sandbox.Refusal{Reason: reasonRunDir, Detail: fmt.Sprintf("the run directory %q is not an absolute path", dir), Cure: "correct $POSTERN_RUN"}
	}
	dir = filepath.Clean(dir)
	info, err := os.Lstat(dir)
	if os.IsNotExist(err) {
		return "", notRunning(dir)
	}
	if err != nil {
		return "", &sandbox.Refusal{Reason: reasonRunDir, Detail: "cannot look at the run directory", Err: err}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return "", &sandbox.Refusal{
			Reason: reasonRunDir,
			Detail: fmt.Sprintf("the run directory %s must be a directory of your own that nobody else may enter, and is %s", dir, info.Mode()),
			Cure:   "chmod 0700 it, or set $POSTERN_RUN to another",
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, leaseSocket)); err != nil {
		return "", notRunning(dir)
	}
	return dir, nil
}

// runDirName is where the run directory would be.
func runDirName() string {
	if dir := os.Getenv("POSTERN_RUN"); dir != "" {
		return dir
	}
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = "/tmp"
	}
	return filepath.Join(base, "postern-"+strconv.Itoa(os.Getuid()))
}

func notRunning(dir string) error {
	return &sandbox.Refusal{
		Reason: reasonAppliance,
		Detail: "the appliance is not running: there is no " + filepath.Join(dir, leaseSocket),
		Cure:   "start it (caddy run), or set $POSTERN_RUN to its run directory",
	}
}
