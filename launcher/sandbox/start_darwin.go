package sandbox

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"

	"postern/launcher/sandbox/seatbelt"
)

// Process is a command under Seatbelt.
type Process struct{ wrapped }

// Start puts up a sandbox for facts and returns when it stands and its listeners exist.
// The command comes later, by Exec. The error is a *Refusal where the host or the request
// is to blame.
func Start(ctx context.Context, f *Facts, o Options) (*Process, error) {
	if err := checkTool(seatbelt.Exe); err != nil {
		out := &Refusal{Reason: ReasonSeatbelt, Detail: "there is no " + seatbelt.Exe + " to be trusted", Err: err}
		if r, ok := errors.AsType[*Refusal](err); ok {
			out.Detail, out.Err = r.Detail, r.Err // what it advises is about another tool
		}
		return nil, out
	}
	p := &Process{wrapped{wrapper: wrapper{
		Tool: seatbelt.Exe, True: "/usr/bin/true",
		Enter: []string{InitCommand, "enter"}, Guard: []string{InitCommand, "guard"},
	}}}
	if err := p.start(ctx, f, o); err != nil {
		return nil, err
	}
	return p, nil
}

// Init is what our binary is beside the launcher: the first program in a sandbox, or the
// guard of one.
func Init(args []string) int {
	if len(args) != 2 {
		return ExitRefused
	}
	switch args[0] {
	case "enter":
		syscall.CloseOnExec(fdOrders)
		syscall.CloseOnExec(fdAnswers)
		return enter(args[1], byProfile, os.NewFile(fdOrders, "orders"), os.NewFile(fdAnswers, "answers"))
	case "guard":
		if group, err := strconv.Atoi(args[1]); err == nil && group > 1 {
			return keepWatch(os.Stdin, group)
		}
	}
	return ExitRefused
}

// CheckPorts says why ports cannot be led into and out of sandboxes on this system.
func CheckPorts() error { return nil }
