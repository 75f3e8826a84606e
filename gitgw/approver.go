package gitgw

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Question asks whether a push may go on, one question for all its refs, or whether a
// run may reach a host.
type Question struct {
	// ID is a random name, unique among open questions.
	ID string `json:"id"`
	// Kind is [KindEgress] for a host and "" for a push.
	Kind string    `json:"kind,omitempty"`
	Time time.Time `json:"time"`
	// WaitsUntil is how long the push or the connection waits. For a push an answer
	// until Deadline counts as well: the same push, made again, finds it.
	WaitsUntil time.Time    `json:"waitsUntil"`
	Deadline   time.Time    `json:"deadline"`
	Session    string       `json:"session"`
	Agent      string       `json:"agent,omitempty"`
	Workspace  string       `json:"workspace,omitempty"`
	Repository Repo         `json:"repository,omitzero"`
	Refs       []RefVerdict `json:"refs,omitempty"`

	// Options are the push options: a yes lets them through as well.
	Options []string `json:"options,omitempty"`

	// What is asked about a host: HOST:PORT, in which form the client asked for it
	// ("connect", "http", "socks5", ...), under which policy, and the code and the
	// sentence with which it would be refused, with the rule and its place if one
	// says so.
	Target string `json:"target,omitempty"`
	Proto  string `json:"proto,omitempty"`
	Policy string `json:"policy,omitempty"`
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Source string `json:"source,omitempty"`

	// Scopes are the scopes that an answer may have. None means [ScopeOnce] alone.
	Scopes []string `json:"scopes,omitempty"`
}

// KindEgress is the kind of a question about a host.
const KindEgress = "egress"

// Scopes of an answer. Of a no, any scope but once means the rest of the session.
const (
	ScopeOnce    = "once"    // what asked, and nothing else; the default
	ScopeSession = "session" // the same host and port for as long as the session lasts
	ScopeAlways  = "always"  // written to the policy's list as well
)

// Accepts refuses an answer of a scope that the question does not offer. Nobody may
// believe to have decided more than has been, or less.
func (q Question) Accepts(a Answer) error {
	if a.Scope == "" || a.Scope == ScopeOnce || slices.Contains(q.Scopes, a.Scope) {
		return nil
	}
	offered := q.Scopes
	if len(offered) == 0 {
		offered = []string{ScopeOnce}
	}
	return fmt.Errorf("scope %q is not offered by this question; it has %q", a.Scope, offered)
}

// RefVerdict is one ref of a push with what the rules said of it.
type RefVerdict struct {
	Ref    string `json:"ref"`
	Action Action `json:"action"`
	Old    string `json:"old"`
	New    string `json:"new"`
	// Verdict is ask for the refs that need approval, allow for the rest.
	Verdict Kind `json:"verdict"`
	// Rule and Source name the deciding rule, as in "ask main" and "Caddyfile:41".
	// Where it was the rule source's, Rule is [SourceName].
	Rule   string `json:"rule,omitempty"`
	Source string `json:"source,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Host is what the rule source said, "allow", "ask" or "deny", whatever the
	// verdict; "" where it was not asked.
	Host string `json:"host,omitempty"`
}

// Answer is an approver's decision.
type Answer struct {
	Allowed bool `json:"allowed"`
	// By names who decided, for the audit record.
	By string `json:"by,omitempty"`
	// Reason is shown in git's output when the push is not allowed, and in the refusal
	// when the host is not.
	Reason string `json:"reason,omitempty"`
	// Scope is how far the answer goes; "" is [ScopeOnce].
	Scope string `json:"scope,omitempty"`
}

// Approver answers questions. Whatever it cannot answer is denied.
type Approver interface {
	// Connected reports whether anybody would hear a question. When not, the
	// push or the host is denied at once instead of after a wait.
	Connected() bool
	// Ask blocks until there is an answer, ctx ends (the client or its session is
	// gone, or the deadline has passed) or the answer cannot come any more. An error's text is shown
	// in git's output, so it names the trouble and no path or secret.
	Ask(ctx context.Context, q Question) (Answer, error)
}
