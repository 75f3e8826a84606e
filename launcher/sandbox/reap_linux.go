package sandbox

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// obey passes signals on until the launcher hangs up, which ends the sandbox, and
// bubblewrap with it: see Process.launch.
func (in *initial) obey() {
	for {
		m, err := in.next(maxInside)
		if err != nil {
			// Past everything that runs at an exit: at once.
			syscall.Exit(128 + int(unix.SIGKILL))
		}
		if m.Type == msgSignal {
			in.signal(syscall.Signal(m.Signal), m.Group, m.ID)
		}
	}
}

func (in *initial) signal(sig syscall.Signal, group bool, turn uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.turn = max(in.turn, turn)
	switch {
	case in.pid == 0:
	case group:
		for _, pid := range in.tty.groups(sig, in.pid) {
			_ = unix.Kill(-pid, sig)
		}
	default:
		_ = unix.Kill(in.pid, sig)
	}
}

// reap waits for every child of the sandbox, its orphans included, until the command
// has ended. What still runs then ends with PID 1.
func (in *initial) reap() error {
	stops := in.tty.stops()
	for {
		var status unix.WaitStatus
		var info unix.Siginfo
		// Looked at first and reaped under the lock, so that a signal on its way
		// cannot meet another process of the same number.
		if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|stops, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait: %w", err)
		}
		in.mu.Lock()
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|stops, nil)
		ours := err == nil && pid == in.pid && pid != 0
		ended, turn := ours && !status.Stopped(), in.turn
		if ended {
			in.pid = 0
		}
		in.mu.Unlock()
		if ours && !ended {
			if err := in.send(&message{Type: msgStopped, ID: turn}); err != nil {
				return err
			}
		}
		if ended {
			m := &message{Type: msgExit, Code: status.ExitStatus()}
			if status.Signaled() {
				m.Code, m.Signal = 0, int(status.Signal())
			}
			return in.send(m)
		}
	}
}
