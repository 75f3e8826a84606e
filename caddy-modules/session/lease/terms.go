package lease

import (
	"encoding/json"
	"errors"
	"fmt"
)

// EventTerms tells a launcher what its session is by now, where that was changed. It is
// between the two ends of a lease alone: the other events are for who likes to know.
const EventTerms = "terms"

// resumeRoom is what a hello has beside its Spec, at the most.
const resumeRoom = 8 << 10

// Caps bound what a session may have open at a time and what it may move in its life.
// Zero is no bound.
type Caps struct {
	Tunnels   int   `json:"tunnels,omitempty"`   // open at a time
	Requests  int   `json:"requests,omitempty"`  // plain ones under way at a time
	PerSecond int   `json:"perSecond,omitempty"` // connections opened
	Bytes     int64 `json:"bytes,omitempty"`     // both ways, until the session ends
}

// Validate refuses a bound below zero.
func (c Caps) Validate() error {
	if c.Tunnels < 0 || c.Requests < 0 || c.PerSecond < 0 || c.Bytes < 0 {
		return fmt.Errorf("validate limits: %+v has a number below zero; leave out what is not bounded", c)
	}
	return nil
}

// Terms are what of a session can be changed while it lives. The appliance writes
// nothing down, so the launcher keeps them, and a session that is lent to the next
// appliance is what it was with the last.
type Terms struct {
	Policy          string   `json:"policy,omitempty"`
	NetworkEnabled  bool     `json:"networkEnabled"`
	EgressAllowlist []string `json:"egressAllowlist,omitempty"`
	Limits          Caps     `json:"limits"`
}

// TermsOf are the terms of a session as a Spec and limits of its own have it.
func TermsOf(s Spec, limits Caps) Terms {
	return Terms{Policy: s.Policy, NetworkEnabled: s.Network(), EgressAllowlist: s.EgressAllowlist, Limits: limits}
}

// Resumable refuses a Spec that a launcher could not lend again for its size.
func Resumable(s Spec) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode session: %w", err)
	}
	if most := MaxMessage - resumeRoom; len(data) > most {
		return fmt.Errorf("the session would have %d bytes, which its launcher could not lend again: at most %d", len(data), most)
	}
	return nil
}

// Amend makes h the hello of a session with these terms, for the next appliance.
func (h *Hello) Amend(t Terms) {
	h.Spec.Policy, h.Spec.NetworkEnabled, h.Spec.EgressAllowlist = t.Policy, &t.NetworkEnabled, t.EgressAllowlist
	resume := Resume{}
	if h.Resume != nil {
		resume = *h.Resume
	}
	resume.Limits = &t.Limits
	h.Resume = &resume
}

// SendTerms tells the launcher the terms of its session. When it returns without an
// error the launcher has them, or its kernel keeps them for it: that this process ends
// does not take them away.
func (r *Request) SendTerms(t Terms) error {
	return r.send(Event{Type: EventTerms, Fields: map[string]any{EventTerms: t}})
}

// readTerms reads what SendTerms wrote.
func readTerms(line []byte) (Terms, error) {
	var e struct {
		Terms *Terms `json:"terms"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return Terms{}, fmt.Errorf("decode terms: %w", err)
	}
	if e.Terms == nil {
		return Terms{}, errors.New("decode terms: there are none")
	}
	return *e.Terms, nil
}
