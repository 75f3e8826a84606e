package session

import (
	"context"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
)

// HostAsker asks whoever may open a host that a policy asks about first. It outlives
// the generation that has it, since a question goes on over a reload.
type HostAsker interface {
	// Connected reports whether anybody would hear a question. When not, the host is
	// refused at once instead of after a wait.
	Connected() bool

	// AskHost blocks until there is an answer, and no longer than ctx. An error says
	// why there is none, without an address or a path: the run is told. An answer that
	// has been taken is returned even where ctx has ended in the same moment.
	AskHost(ctx context.Context, q HostQuestion) (HostAnswer, error)
}

// Scope is how far an answer goes.
type Scope string

// The scopes. Of a no, any scope but once means the rest of the session.
const (
	ScopeOnce    Scope = "once"    // what asked, and nothing else
	ScopeSession Scope = "session" // the same host and port while the session lasts
	ScopeAlways  Scope = "always"  // written to the policy's list as well
)

// HostQuestion asks whether a session may reach a host.
type HostQuestion struct {
	ID             string // random
	Time, Deadline time.Time

	Session, Agent, Workspace, Policy string

	// Proto is how the client asked for it, Decision what it would be told, with the
	// target.
	Proto    proxy.Proto
	Decision policy.Decision

	// Scopes are those that an answer may have.
	Scopes []Scope
}

// HostAnswer is the decision of an approver.
type HostAnswer struct {
	Allowed bool
	By      string // who decided; may be empty
	Reason  string // for the run, when it is refused; may be empty
	Scope   Scope  // "" is once
}

// Approvals are what a generation does about hosts that are asked about first. The
// zero value refuses them.
type Approvals struct {
	// Asker is whom to ask; nil for nobody.
	Asker HostAsker

	// Wait is how long a connection waits for an answer; 0 means AskWait.
	Wait time.Duration

	// Always writes an approved target to a policy's list and has it loaded, by the
	// name of the policy; the answer's scope is not offered where there is none. It
	// returns when the target is written. loaded is called once, when the list has
	// been loaded, or with why it has not; it is not called after an error.
	Always map[string]func(t policy.Target, by, session string, loaded func(error)) error
}
