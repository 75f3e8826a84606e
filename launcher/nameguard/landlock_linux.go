package nameguard

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MissingError says which part of the kernel the guard cannot do without, and is not there.
type MissingError struct {
	Part string
	Err  error // the system's word; may be nil
}

// Error implements error.
func (e *MissingError) Error() string {
	text := "the kernel gives no " + e.Part
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the system's error.
func (e *MissingError) Unwrap() error { return e.Err }

// minLandlock is the version of Landlock that can refuse links and renames between folders.
const minLandlock = 2

// withheld are the rights that the sandbox has in free folders alone. Reading and running
// are not among them, so that they cost nothing; nor is cutting a file short, for which
// every plain open would be looked at.
const withheld = unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
	unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
	unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER

// removing are the rights that are left everywhere where the rules are not about deleting.
const removing = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE

// landlockVersion asks the kernel; zero: it has none.
func landlockVersion() (int, error) {
	n, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// restrict takes the rights away from the calling thread, and from all that it will ever
// start, but in the free folders.
func restrict(freeDirs []string, trapRemove bool) error {
	handled := uint64(withheld)
	if !trapRemove {
		handled &^= removing
	}
	// The first field alone: older kernels know no other.
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	set, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0) //nolint:gosec // what the system call takes
	if e != 0 {
		return fmt.Errorf("make a Landlock ruleset: %w", e)
	}
	defer func() { _ = unix.Close(int(set)) }()
	for _, dir := range freeDirs {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue // nothing to be free in
		}
		if err != nil {
			return &os.PathError{Op: "open free folder", Path: dir, Err: err}
		}
		rule := unix.LandlockPathBeneathAttr{Allowed_access: handled, Parent_fd: int32(fd)}                                                    //nolint:gosec // descriptors are small
		_, _, e := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, set, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0) //nolint:gosec // what the system call takes
		_ = unix.Close(fd)
		if e != 0 {
			return &os.PathError{Op: "free folder", Path: dir, Err: e}
		}
	}
	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); e != 0 {
		return fmt.Errorf("apply the Landlock ruleset: %w", e)
	}
	return nil
}
