package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fatal are the signals whose default, with Go, is to end the process.
var fatal = [...]unix.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE,
	unix.SIGQUIT, unix.SIGTRAP, unix.SIGABRT, unix.SIGSTKFLT, unix.SIGSYS,
}

// shield gives PID 1 the protection that Go takes from it. The kernel delivers to a
// PID 1 only what that has a handler for, and Go has one for everything: kill 1 from
// inside would end the run. So the kernel gets back what would.
//
// Package os/signal could catch them as well, by a thread of its own that is asked for
// each: a good part of all that PID 1 does before the sandbox stands.
func shield() error {
	var byDefault [8]uint64 // struct sigaction, whatever its size: SIG_DFL and no flags
	for _, sig := range fatal {
		_, _, no := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0) //nolint:gosec // what the system call takes
		if no != 0 {
			return fmt.Errorf("leave %s to the kernel: %w", unix.SignalName(sig), no)
		}
	}
	return nil
}
