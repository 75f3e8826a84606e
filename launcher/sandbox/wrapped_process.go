package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"postern/caddy-modules/session/lease"
)

// Pair is the listeners of the run, on the host's loopback.
func (w *wrapped) Pair() lease.Pair { return w.loop.pair }

// Low are the sockets of the run's resolver, where it has one, and no others: the run has
// no loopback of its own.
func (w *wrapped) Low() ([]LowSocket, error) {
	if low := w.loop.resolver.sockets(); low != nil {
		return low, nil
	}
	return nil, &Refusal{Reason: ReasonLowPorts, Detail: "a run on macOS has no loopback of its own", Cure: "mac_dns guard gives it a resolver"}
}

// Facts are what the sandbox was made of.
func (w *wrapped) Facts() *Facts { return w.facts }

// SetGitConfig writes the git configuration the run sees, before Exec.
func (w *wrapped) SetGitConfig(text string) error {
	if err := os.WriteFile(w.dir.in(ownGit), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write git configuration: %w", err)
	}
	return nil
}

// Exec runs the command, once. The error is a *ExecError when the command is to blame.
func (w *wrapped) Exec(c Command) error {
	if c.Dir == "" {
		c.Dir = w.facts.Dir
	}
	argv, err := pack(c.Argv)
	if err != nil {
		return fmt.Errorf("run command: %w", err)
	}
	env, err := pack(c.Env)
	if err != nil {
		return fmt.Errorf("run command: %w", err)
	}
	data, err := encode(&message{Type: msgStart, Argv: argv, Env: env, Dir: []byte(c.Dir)}, maxStart)
	if err != nil {
		return err
	}
	if _, err := w.orders.Write(data); err != nil {
		return &Refusal{Reason: ReasonStart, Detail: "cannot hand over the command", Err: err}
	}
	switch m, err := w.answer(context.Background()); {
	case errors.Is(err, io.EOF):
		return nil // it has become the command
	case err != nil:
		return &Refusal{Reason: ReasonProtocol, Detail: "the inside of the sandbox spoke nonsense", Err: err}
	case m.Type == msgFailed && m.Reason == "":
		return &ExecError{Code: m.Code, Detail: m.Detail}
	default:
		return &Refusal{Reason: cmpReason(m.Reason, ReasonProtocol), Detail: m.Detail}
	}
}

// Signal sends a signal to the command, or to its whole process group, as a terminal
// does.
func (w *wrapped) Signal(sig syscall.Signal, group bool) error {
	w.life.Lock()
	defer w.life.Unlock()
	if w.cmd == nil || w.ended {
		return os.ErrProcessDone
	}
	pid := w.cmd.Process.Pid
	if group {
		pid = -pid
	}
	return syscall.Kill(pid, sig)
}

// Wait waits for the command to end, and ends what it left in its process group. What
// left the group as well lives on, without a network: the run's secret is nobody's then.
func (w *wrapped) Wait() (Status, error) {
	if w.cmd == nil {
		return Status{}, errors.New("wait for command: there is none")
	}
	w.wait.Do(func() {
		err := w.cmd.Wait()
		w.life.Lock()
		defer w.life.Unlock()
		w.ended = true
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
		status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok {
			w.lost = fmt.Errorf("wait for command: %w", err)
			return
		}
		w.state = Status{Code: max(status.ExitStatus(), 0)}
		if status.Signaled() {
			w.state = Status{Signal: status.Signal()}
		}
	})
	w.release()
	return w.state, w.lost
}

// Kill ends the command at once, with its process group.
func (w *wrapped) Kill() { _ = w.Signal(syscall.SIGKILL, true) }

// Close ends a sandbox, whatever state it is in, and frees what it holds.
func (w *wrapped) Close() {
	w.Kill()
	if w.cmd != nil {
		_, _ = w.Wait()
	}
	w.release()
}

// release frees what the run has held. The guard is told that all is well.
func (w *wrapped) release() {
	w.free.Do(func() {
		w.loop.close()
		for _, f := range []*os.File{w.orders, w.answers} {
			if f != nil {
				_ = f.Close()
			}
		}
		if w.leash != nil {
			_, _ = w.leash.Write([]byte{0})
			_ = w.leash.Close()
		}
		if w.guard != nil {
			_ = w.guard.Wait()
		}
		w.dir.remove()
	})
}
