package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"postern/caddy-modules/policy"
)

// Denied is a refusal by policy.
type Denied struct { //nolint:errname // the word of the policy, not of a mishap
	Target   policy.Target
	Decision policy.Decision
}

func (e *Denied) Error() string { return "denied by policy: " + e.Decision.Reason() }

func isDenied(err error) bool {
	_, ok := errors.AsType[*Denied](err)
	return ok
}

// Op is the step of reaching an upstream that failed.
type Op string

// The steps.
const (
	OpLookup   Op = "lookup"
	OpConnect  Op = "connect"
	OpParent   Op = "parent"   // of the parent proxy, or by it
	OpExchange Op = "exchange" // of a plain request, after the connection was there
)

// DialError says that a target is allowed and could not be reached.
type DialError struct {
	Target policy.Target
	Op     Op
	Err    error
	// Late says that a limit of time ran out.
	Late bool

	resolved []netip.Addr // that were tried
	parent   string       // that was asked, "" for none
}

func (e *DialError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Target, e.Err) }
func (e *DialError) Unwrap() error { return e.Err }

var (
	errNoResolver = errors.New("no resolver is configured")
	errNoAddress  = errors.New("the name has no address")
)

// asDialError leaves a refusal by policy what it is, wherever it was found: the
// last check runs inside the dialler and comes back wrapped by it.
func asDialError(ctx context.Context, t policy.Target, err error) error {
	if denied, ok := errors.AsType[*Denied](err); ok {
		return denied
	}
	if already, ok := errors.AsType[*DialError](err); ok {
		return already
	}
	return &DialError{Target: t, Op: OpConnect, Err: err, Late: isLate(ctx, err)}
}

func isLate(ctx context.Context, err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(ctx.Err(), context.DeadlineExceeded) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, os.ErrDeadlineExceeded) ||
		ok && timeout.Timeout() ||
		errors.Is(err, syscall.ETIMEDOUT)
}

// code is the stable word for a failure, in the header Postern-Reason.
func (e *DialError) code() string {
	dns, isDNS := errors.AsType[*net.DNSError](e.Err)
	switch {
	case e.Op == OpLookup && e.Late:
		return "lookup_timeout"
	case e.Op == OpLookup && isDNS && dns.IsNotFound, errors.Is(e.Err, errNoAddress):
		return "name_not_found"
	case e.Op == OpLookup:
		return "lookup_failed"
	case e.Op == OpParent && errors.Is(e.Err, errRefusedByParent):
		return "parent_refused"
	case e.Op == OpParent && e.Late:
		return "parent_timeout"
	case e.Op == OpParent:
		return "parent_failed"
	case e.Op == OpExchange && e.Late:
		return "upstream_timeout"
	case e.Op == OpExchange:
		return "upstream_failed"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "connection_refused"
	case errors.Is(e.Err, syscall.ENETUNREACH):
		return "network_unreachable"
	case errors.Is(e.Err, syscall.EHOSTUNREACH):
		return "host_unreachable"
	case e.Late:
		return "connect_timeout"
	default:
		return "connect_failed"
	}
}

// cause is the error underneath, which is ours or the kernel's and never the upstream's
// text, without the addresses of a socket: from which of the host's it left, and where
// the parent stands, is nothing that a sandbox needs to know.
func (e *DialError) cause() string {
	if op, ok := errors.AsType[*net.OpError](e.Err); ok && op.Err != nil {
		return op.Op + ": " + op.Err.Error()
	}
	return e.Err.Error()
}

// sentence is one line for a person in the sandbox. The log has the whole.
func (e *DialError) sentence() string {
	switch e.code() {
	case "lookup_timeout":
		return e.Target.String() + " is allowed, but the lookup of its name took too long"
	case "name_not_found":
		return e.Target.String() + " is allowed, but its name does not exist or has no address"
	case "lookup_failed":
		return e.Target.String() + " is allowed, but the lookup of its name failed"
	case "connection_refused":
		return e.Target.String() + " is allowed, but refused the connection"
	case "network_unreachable", "host_unreachable":
		return e.Target.String() + " is allowed, but there is no route to it"
	case "connect_timeout":
		return e.Target.String() + " is allowed, but did not answer in time"
	case "parent_refused":
		return e.Target.String() + " is allowed, but " + e.Err.Error()
	case "parent_timeout":
		return e.Target.String() + " is allowed, but the parent proxy did not answer in time"
	case "parent_failed":
		return e.Target.String() + " is allowed, but the parent proxy of this network could not be used"
	case "upstream_timeout":
		return e.Target.String() + " is allowed, but stopped answering"
	case "upstream_failed":
		return e.Target.String() + " is allowed, but broke the exchange: " + e.cause()
	default:
		return e.Target.String() + " is allowed, but could not be reached: " + e.cause()
	}
}
