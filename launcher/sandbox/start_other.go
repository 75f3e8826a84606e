//go:build !linux && !darwin

package sandbox

import (
	"context"
	"errors"
	"runtime"
	"syscall"

	"postern/caddy-modules/session/lease"
)

// Process is a sandbox that stands. There is none on this system yet.
type Process struct{}

var errNoSandbox = errors.New("there is no sandbox on this system")

// Start refuses: a run without a sandbox is never what was asked for.
func Start(context.Context, *Facts, Options) (*Process, error) {
	return nil, &Refusal{Reason: ReasonUnsupportedOS, Detail: "there is no sandbox for " + runtime.GOOS, Cure: "run it on Linux"}
}

// Init reports failure: no sandbox here has a PID 1 of ours.
func Init([]string) int { return ExitRefused }

// Pair is empty.
func (*Process) Pair() lease.Pair { return lease.Pair{} }

// Facts is nil.
func (*Process) Facts() *Facts { return nil }

// SetGitConfig fails.
func (*Process) SetGitConfig(string) error { return errNoSandbox }

// Exec fails.
func (*Process) Exec(Command) error { return errNoSandbox }

// Signal fails.
func (*Process) Signal(syscall.Signal, bool) error { return errNoSandbox }

// Wait fails.
func (*Process) Wait() (Status, error) { return Status{}, errNoSandbox }

// Kill does nothing.
func (*Process) Kill() {}

// Close does nothing.
func (*Process) Close() {}

// Low has no sockets.
func (*Process) Low() ([]LowSocket, error) { return nil, errNoSandbox }
