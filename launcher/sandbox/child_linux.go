package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is bubblewrap. Package os starts processes, too, and the first time tries with
// a process more whether the kernel can do what it would like to: half a millisecond of
// every launcher's life. What it is for, not to signal another process of the same
// number, a lock does here.
type child struct {
	pid int

	mu     sync.Mutex
	reaped bool
}

// startChild starts what cmd describes, with std as its standard descriptors.
func startChild(cmd *exec.Cmd, std [3]*os.File) (*child, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	inherited := append(std[:], cmd.ExtraFiles...)
	attr := &syscall.ProcAttr{Dir: cmd.Dir, Env: cmd.Env, Files: make([]uintptr, 0, len(inherited)), Sys: cmd.SysProcAttr}
	for _, f := range inherited {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid, err := syscall.ForkExec(cmd.Path, cmd.Args, attr)
	if err != nil {
		return nil, &os.PathError{Op: "start", Path: cmd.Path, Err: err}
	}
	return &child{pid: pid}, nil
}

// PID is bubblewrap's, which stands for the sandbox among the processes of the host.
func (p *Process) PID() int { return p.child.pid }

// wait waits for its end and returns its status, as a shell reports it.
func (c *child) wait() int {
	// Looked at first, and reaped under the lock: see kill.
	if !c.poll() {
		for {
			err := unix.Waitid(unix.P_PID, c.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(c.pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// poll waits until it has ended, without a thread: one that waits in a system call makes
// the runtime look after it, many times a millisecond at first. It reports false where
// the kernel has no such descriptors, which came with Linux 5.10.
func (c *child) poll() bool {
	fd, err := unix.PidfdOpen(c.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "process")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Read(func(uintptr) bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		return err != nil && !errors.Is(err, unix.EINTR) || info.Signo != 0
	}) == nil
}

// kill ends it and its children, those first: alone, a child that waits for its parent
// would wait for ever.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.pid, c.pid))
	for text := range strings.FieldsSeq(string(children)) {
		if pid, err := strconv.Atoi(text); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_ = syscall.Kill(c.pid, syscall.SIGKILL)
}
