package gitgw

import (
	"context"
	"time"
)

// Question asks whether a push may go on: one question for all its refs.
type Question struct {
	// ID is a random name, unique among open questions.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// WaitsUntil is how long the push waits. An answer until Deadline counts as
	// well: the same push, made again, finds it.
	WaitsUntil time.Time    `json:"waitsUntil"`
	Deadline   time.Time    `json:"deadline"`
	Session    string       `json:"session"`
	Agent      string       `json:"agent,omitempty"`
	Workspace  string       `json:"workspace,omitempty"`
	Repository Repo         `json:"repository"`
	Refs       []RefVerdict `json:"refs"`
	// Options are the push options: a yes lets them through as well.
	Options []string `json:"options,omitempty"`
}

// RefVerdict is one ref of a push with what the rules said of it.
type RefVerdict struct {
	Ref    string `json:"ref"`
	Action Action `json:"action"`
	Old    string `json:"old"`
	New    string `json:"new"`
	// Verdict is ask for the refs that need approval, push for the rest.
	Verdict Kind `json:"verdict"`
	// Rule and Source name the deciding rule, as in "ask main" and "Caddyfile:41".
	// Where it was the rule source's, Rule is [SourceName].
	Rule   string `json:"rule,omitempty"`
	Source string `json:"source,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Host is what the rule source said, "push", "ask" or "deny", whatever the
	// verdict; "" where it was not asked.
	Host string `json:"host,omitempty"`
}

// Answer is an approver's decision.
type Answer struct {
	Allowed bool `json:"allowed"`
	// By names who decided, for the audit record.
	By string `json:"by,omitempty"`
	// Reason is shown in git's output when the push is not allowed.
	Reason string `json:"reason,omitempty"`
}

// Approver answers questions. Whatever it cannot answer is denied.
type Approver interface {
	// Connected reports whether anybody would hear a question. When not, the
	// push is denied at once instead of after a wait.
	Connected() bool
	// Ask blocks until there is an answer, ctx ends (the client or its session is
	// gone, or the deadline has passed) or the answer cannot come any more. An error's text is shown
	// in git's output, so it names the trouble and no path or secret.
	Ask(ctx context.Context, q Question) (Answer, error)
}
