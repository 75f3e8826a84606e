//go:build !linux && !darwin

package sandbox

import (
	"context"
	"net"
)

// errPorts says what is missing here: a run has no network of its own to lead into.
var errPorts = &Refusal{
	Reason: ReasonPorts,
	Detail: "ports cannot be led into or out of a sandbox on this system",
	Cure:   "run it on Linux",
}

// CheckPorts refuses.
func CheckPorts() error { return errPorts }

// Dial refuses.
func (*Process) Dial(context.Context, uint16) (*net.TCPConn, error) { return nil, errPorts }

// Listen refuses.
func (*Process) Listen(context.Context, uint16) ([]*net.TCPListener, error) { return nil, errPorts }
