package nameguard

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Probe says, by a *MissingError, what the kernel lacks for names to be guarded, and
// changes nothing. What it cannot tell, whether Landlock and the broker hold, the canaries
// of each run do.
func Probe() error {
	if archTokens[runtime.GOARCH] == 0 {
		return &MissingError{Part: "filter for " + runtime.GOARCH + " that we know"}
	}
	version, err := landlockVersion()
	if version < minLandlock {
		return &MissingError{Part: fmt.Sprintf("Landlock of version %d (it has %d)", minLandlock, version), Err: err}
	}
	var has sizes
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, uintptr(unsafe.Pointer(&has))); e != 0 { //nolint:gosec // what the system call takes
		return &MissingError{Part: "notifications of seccomp", Err: e}
	}
	if has != ourSizes {
		return &MissingError{Part: fmt.Sprintf("notifications of seccomp in the form that we know (%v, not %v)", has, ourSizes)}
	}
	// A filter that is nowhere is looked for after the flags were.
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, filterFlags, 0); e != unix.EFAULT {
		return &MissingError{Part: waitKillable, Err: e}
	}
	return nil
}

// filterFlags: without the second a signal interrupts a call that was done already, and
// the caller does it twice.
const (
	filterFlags  = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	waitKillable = "filter whose calls wait unless they are killed (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, Linux 5.19)"
)
