package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hostDevices are the nodes of the host's that bubblewrap's /dev shows.
var hostDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// ownsDevices reports whether a run could change those nodes: they are root's, and the
// owner of a file changes its mode whatever capabilities it lacks. A run of root that
// sets /dev/null to 0600 takes it from everybody on the host.
func ownsDevices() bool { return os.Geteuid() == 0 }

// keepDevices makes the nodes read-only in this mount namespace, and so in the one that
// bubblewrap makes of it, which keeps the flag. Reading and writing a device goes on as
// before: the flag is about the node.
func keepDevices() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep the host's devices: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_RDONLY}
	for _, path := range hostDevices {
		err := unix.Mount(path, path, "", unix.MS_BIND, "")
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, &attr)
		}
		if err != nil {
			return fmt.Errorf("keep the host's %s: %w", path, err)
		}
	}
	return nil
}
