package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// bubblewrap reads the whole table of mounts again for each mount that it makes, so that
// n of them cost n² (2,000 are six seconds), and it takes 9,000 arguments at most. Its
// bind mounts are recursive, though: what is mounted below a folder beforehand comes
// along, read-only or not, and is locked as if it had been mounted there.
//
// So where many are wanted, and where the host's devices are to be kept, a process between the launcher and bubblewrap makes those of
// the denials and pins in a mount namespace of its own, one system call or two for each,
// gives its capabilities up and becomes bubblewrap. Where the kernel does not let it, it
// becomes bubblewrap with all of the mounts to make. PID 1 checks the result in either
// case.

// maskFrom is from how many mounts on that is worth a further process.
const maskFrom = 64

// maskStage is the argument of Init that makes it that process.
const maskStage = "mask"

// maxBwrapArgs is how many arguments bubblewrap takes (MAX_ARGS in its sources).
const maxBwrapArgs = 9000

// beforehand reports whether a mount can be made before bubblewrap's.
func (m *Mount) beforehand() bool { return m.role == rolePin || m.role == roleGuard }

// splitPlan writes a plan as bubblewrap's options: all of them, those that are left when
// the masks are made beforehand, and the masks; nil where they are few.
func splitPlan(plan []Mount, fds descriptors) (all, rest, masks []string, err error) {
	count := 0
	for i := range plan {
		if plan[i].beforehand() {
			count++
		}
	}
	for i := range plan {
		one, err := args(plan[i:i+1], fds)
		if err != nil {
			return nil, nil, nil, err
		}
		all = append(all, one...)
		m := &plan[i]
		switch {
		case count < maskFrom || !m.beforehand():
			rest = append(rest, one...)
		case m.Op != OpRemountRO: // what the stage hides with is read-only at once
			masks = append(masks, string(m.Op), m.Source, m.Target)
		}
	}
	return all, rest, masks, nil
}

// stageMasks turns a bubblewrap command whose second argument is the number of its
// options into one that makes masks first.
func stageMasks(cmd *exec.Cmd, exe string, masks, all []string, fds *files) error {
	packed, err := pack(masks)
	if err != nil {
		return err
	}
	maskFD, err := fds.data(string(packed))
	if err != nil {
		return err
	}
	// Without them it is refused there, and says why.
	allFD := 0
	if len(all) < maxBwrapArgs {
		if packed, err = pack(all); err != nil {
			return err
		}
		if allFD, err = fds.data(string(packed)); err != nil {
			return err
		}
	}
	cmd.Args = append([]string{exe, InitCommand, maskStage, strconv.Itoa(maskFD), strconv.Itoa(allFD)}, cmd.Args...)
	cmd.Path = exe
	cmd.ExtraFiles = fds.list
	maskNamespace(cmd.SysProcAttr)
	return nil
}

// maskNamespace asks for namespaces in which the caller may mount.
func maskNamespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
}

// becomeBwrap is that process: args are the number of the masks, that of all options,
// and bubblewrap's command line.
func becomeBwrap(args []string) int {
	runtime.LockOSThread() // capabilities are a thread's
	if len(args) < 5 {
		return initFailed(errors.New("make masks: too few arguments"))
	}
	argv := slices.Clone(args[2:])
	if ownsDevices() {
		if err := keepDevices(); err != nil {
			return initFailed(err)
		}
	}
	if err := makeMasks(args[0]); err != nil {
		if args[1] == "0" {
			return initFailed(fmt.Errorf("%s: %w", tooManyMounts, err))
		}
		argv[2] = args[1]
	}
	if err := dropCapabilities(); err != nil {
		return initFailed(err)
	}
	return initFailed(syscall.Exec(argv[0], argv, os.Environ())) //nolint:gosec // the launcher wrote it
}

// tooManyMounts is how the launcher knows this failure.
const tooManyMounts = "more mounts than bubblewrap takes, and they cannot be made beforehand"

// makeMasks makes the mounts of a list, parents first as they are.
func makeMasks(number string) error {
	fd, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("make masks: %w", err)
	}
	f := os.NewFile(uintptr(fd), "masks")
	packed, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("make masks: %w", err)
	}
	list, err := unpack(packed)
	if err != nil {
		return fmt.Errorf("make masks: %w", err)
	}
	if len(list)%3 != 0 {
		return errors.New("make masks: the list is cut off")
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make masks: %w", err)
	}
	nothing := "" // the first hidden folder; the others show the same
	for mask := range slices.Chunk(list, 3) {
		op, source, target := Op(mask[0]), mask[1], mask[2]
		if op == OpTmpfs {
			if nothing == "" {
				nothing = target
				source = ""
			} else {
				source = nothing
			}
		}
		if err := makeMask(op, source, target); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return nil
}

// makeMask makes one. Its flags are those that bubblewrap would give it, which then has
// nothing more to do.
func makeMask(op Op, source, target string) error {
	var err error
	if source == "" {
		err = unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0000")
	} else {
		err = unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if op != OpBind {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW, &attr)
}

// dropCapabilities gives up what the namespace gave: bubblewrap refuses to start with
// capabilities that it did not take itself.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
