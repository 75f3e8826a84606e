package lease

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// zombie is SZOMB of <sys/proc.h>.
const zombie = 5

// startOf reads when a process started, in microseconds since 1970.
func startOf(pid int) (uint64, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	switch {
	// An id that nobody has gives an answer of no length, which is an EIO.
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EIO):
		return 0, errNoProcess
	case err != nil:
		return 0, fmt.Errorf("read start of process %d: %w", pid, err)
	case info.Proc.P_stat == zombie:
		return 0, errNoProcess
	}
	t := info.Proc.P_starttime
	return uint64(t.Sec)*1e6 + uint64(t.Usec), nil //nolint:gosec // no process started before 1970
}
