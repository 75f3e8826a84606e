//go:build unix

package mint

import (
	"os/exec"
	"syscall"
)

// killGroup makes the end of cmd's context kill whatever it started as well.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
