package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// files collects what the child inherits from number 3 on. It implements
// descriptors.
type files struct {
	list []*os.File
}

// add puts f into the list and returns the number it will have in the child.
func (s *files) add(f *os.File) int {
	s.list = append(s.list, f)
	return 2 + len(s.list)
}

// data makes a file in memory: whatever is in it stands in nobody's argv and on no
// disk.
func (s *files) data(content string) (int, error) {
	fd, err := unix.MemfdCreate("postern", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	n := s.add(f)
	if _, err := f.WriteString(content); err != nil {
		return 0, fmt.Errorf("write a file in memory: %w", err)
	}
	_, err = f.Seek(0, 0)
	return n, err
}

// file opens a file of the host to be read once.
func (s *files) file(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	return s.add(os.NewFile(uintptr(fd), path)), nil
}

func (s *files) close() {
	for _, f := range s.list {
		_ = f.Close()
	}
	s.list = nil
}

// isolation are the options beside the mounts.
func isolation(f *Facts) []string {
	out := []string{
		"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", hostname,
		// No --die-with-parent: see Process.launch.
		// No controlling terminal: nothing can be typed into the caller's.
		"--new-session",
		// Our own PID 1: bubblewrap's would run without the filter.
		"--as-pid-1",
		// Matters when root starts a run: inside, root would keep every capability
		// over the new namespaces.
		"--cap-drop", "ALL",
	}
	if f.Terminal {
		// Nothing of its own but processes: the host's network, and its name.
		out = []string{
			"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-cgroup-try",
			"--new-session", "--as-pid-1", "--cap-drop", "ALL",
		}
	}
	if !f.Nested {
		out = append(out, "--disable-userns")
	}
	return out
}

// sockets are what PID 1 is to make, in its arguments: the listeners' ports, and the kinds
// of bare sockets. A terminal has the host's network.
func (f *Facts) sockets(o Options) []string {
	if f.Terminal {
		return nil
	}
	var out []string
	for _, port := range o.Ports {
		out = append(out, strconv.Itoa(port))
	}
	return append(out, o.lowKinds()...)
}

// command builds the bubblewrap command line for facts and their plan. The options
// travel through a file in memory (--args): argv is for everybody to read.
func command(bwrap string, f *Facts, plan []Mount, inner []string, control, stderr *os.File) (_ *exec.Cmd, _ *files, err error) {
	fds := &files{}
	defer func() {
		if err != nil {
			fds.close()
		}
	}()
	if n := fds.add(control); n != fdControl {
		return nil, nil, errors.New("build command: control is not the first descriptor")
	}
	if n := fds.add(stderr); n != fdStderr {
		return nil, nil, errors.New("build command: stderr is not the second descriptor")
	}
	program, err := seccompProgram(f.Unix)
	if err != nil {
		return nil, nil, err
	}
	filterFD, err := fds.data(program)
	if err != nil {
		return nil, nil, err
	}
	all, mounts, masks, err := splitPlan(plan, fds)
	if err != nil {
		return nil, nil, err
	}
	// A fresh copy each time: both lists begin alike.
	options := func(mounts []string) []string {
		out := append(isolation(f), "--seccomp", strconv.Itoa(filterFD))
		return append(append(out, mounts...), "--chdir", "/")
	}
	packed, err := pack(options(mounts))
	if err != nil {
		return nil, nil, err
	}
	argsFD, err := fds.data(string(packed))
	if err != nil {
		return nil, nil, err
	}

	argv := []string{"--args", strconv.Itoa(argsFD), "--", InnerExe, InitCommand}
	argv = append(argv, inner...)
	cmd := exec.Command(bwrap, argv...) //nolint:noctx // it ends with the control connection, see Kill
	// Nothing of the caller's environment loads into bubblewrap either. PID 1 waits for
	// most of its life; a thread less for each further processor is time at every start.
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Dir = "/"
	cmd.ExtraFiles = fds.list
	// A Ctrl-C in the caller's terminal is for us to pass on; in its process group
	// bubblewrap would die of it and take the command along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if len(masks) > 0 || ownsDevices() {
		if err := stageMasks(cmd, f.Exe, masks, options(all), fds); err != nil {
			return nil, nil, err
		}
	}
	return cmd, fds, nil
}
