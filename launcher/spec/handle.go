package spec

import (
	"fmt"
	"maps"
	"slices"
)

// State is how far a sandbox is (SPEC 87).
type State string

// The states.
const (
	Created   State = "created"   // asked for, nothing stands
	Warm      State = "warm"      // it stands, and no command runs in it
	Active    State = "active"    // a command runs
	Suspended State = "suspended" // the command was stopped, and can go on
	Destroyed State = "destroyed" // nothing of it is left
	Failed    State = "error"     // it could not be put up, or was lost
)

// next says which states may follow which. Destroyed is the end; what failed is yet to
// be destroyed.
var next = map[State][]State{
	Created:   {Warm, Destroyed, Failed},
	Warm:      {Active, Suspended, Destroyed, Failed},
	Active:    {Warm, Suspended, Destroyed, Failed},
	Suspended: {Warm, Active, Destroyed, Failed},
	Failed:    {Destroyed},
	Destroyed: nil,
}

// States lists them in the order of a life.
func States() []State { return []State{Created, Warm, Active, Suspended, Destroyed, Failed} }

// May reports whether a sandbox in state s may go to the other one.
func (s State) May(to State) bool { return slices.Contains(next[s], to) }

// Handle is the specification's SandboxHandle: what was made of a Spec (SPEC 86).
type Handle struct {
	SessionID string `json:"sessionId"`

	// Backend is what the run really has, after every fallback (SPEC 11).
	Backend string `json:"backend"`

	State State `json:"state"`

	// Error says what went wrong; it is there when State is error.
	Error string `json:"error,omitempty"`

	// Details are for people and logs: cwd, pid, tool, the proxies' addresses.
	Details map[string]any `json:"details"`
}

// NewHandle is of a sandbox that was just asked for.
func NewHandle(session, backend string) *Handle {
	return &Handle{SessionID: session, Backend: backend, State: Created, Details: map[string]any{}}
}

// To goes to another state; going where the state machine does not lead is an error and
// changes nothing. Failed is reached by Fail alone, which knows why.
func (h *Handle) To(state State) error {
	if state == Failed || !h.State.May(state) {
		return fmt.Errorf("change sandbox %s: %s cannot become %s", h.SessionID, h.State, state)
	}
	h.State = state
	return nil
}

// Fail notes what went wrong. It changes nothing once the sandbox is destroyed.
func (h *Handle) Fail(err error) {
	if h.State.May(Failed) {
		h.State, h.Error = Failed, err.Error()
	}
}

// Copy is a Handle that later changes do not reach.
func (h *Handle) Copy() *Handle {
	c := *h
	c.Details = maps.Clone(h.Details)
	return &c
}
