package lookup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postern/gitgw"
	"postern/gitgw/local"
)

// Version is the form of question and answer. A program that answers with another
// one means something else than is read here.
const Version = 1

// DefaultTimeout is how long a rule source may take: it looks rules up and asks
// nobody.
const DefaultTimeout = 2 * time.Second

// maxAnswer bounds an answer in bytes: 5,000 refs, with a line for each.
const maxAnswer = 4 << 20

// HTTP asks a program for all refs of a push at once: it POSTs
//
//	{"version": 1, "session": "…", "agent": "…", "workspace": "…", "repository": "github.com/acme/app", "options": [],
//	 "updates": [{"ref": "refs/heads/main", "action": "update", "old": "…", "new": "…", "forced": false}]}
//
// and wants 200 and, within the timeout, a verdict on each of the refs and on no
// other:
//
//	{"version": 1, "updates": [{"ref": "refs/heads/main", "verdict": "ask", "reason": "…"}]}
//
// verdict is allow, ask or deny; reason may be left out. Unknown fields make an
// answer unusable: one that says on which condition a push is allowed must not
// be read as a plain yes.
type HTTP struct {
	client  *local.Client
	timeout time.Duration
}

// NewHTTP makes a rule source for an address as [local.New] takes it. timeout 0 is
// [DefaultTimeout].
func NewHTTP(address string, timeout time.Duration) (*HTTP, error) {
	if timeout < 0 {
		return nil, fmt.Errorf("configure rule source %q: negative timeout", address)
	}
	client, err := local.New("rule source", address)
	if err != nil {
		return nil, err
	}
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	return &HTTP{client: client, timeout: timeout}, nil
}

// Close drops idle connections.
func (h *HTTP) Close() error { return h.client.Close() }

// question and asked are the wire form of a lookup.
type question struct {
	Version    int        `json:"version"`
	Session    string     `json:"session"`
	Agent      string     `json:"agent"`
	Workspace  string     `json:"workspace"`
	Repository gitgw.Repo `json:"repository"`
	Options    []string   `json:"options"`
	Updates    []asked    `json:"updates"`
}

type asked struct {
	Ref    string       `json:"ref"`
	Action gitgw.Action `json:"action"` // of a forced update too it is update
	Old    string       `json:"old"`
	New    string       `json:"new"`
	Forced *bool        `json:"forced"` // null: not known
}

// Rulings implements [gitgw.Source].
func (h *HTTP) Rulings(ctx context.Context, l gitgw.Lookup) ([]gitgw.Ruling, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	q := question{
		Version: Version, Session: l.Session, Agent: l.Agent, Workspace: l.Workspace, Repository: l.Repository,
		Options: l.Options, Updates: make([]asked, len(l.Updates)),
	}
	if q.Options == nil {
		q.Options = []string{}
	}
	for i, u := range l.Updates {
		if u.Action == gitgw.ActionForce {
			u.Action, u.Forced = gitgw.ActionUpdate, gitgw.ForcedYes
		}
		q.Updates[i] = asked{u.Ref, u.Action, u.Old, u.New, forced(u)}
	}
	var a answer
	if err := h.client.Ask(ctx, q, &a, maxAnswer); err != nil {
		return nil, err
	}
	rulings, err := a.rulings(l.Updates)
	if err != nil {
		return nil, h.client.Unusable(err)
	}
	return rulings, nil
}

// forced is nil where it is not known. What creates or deletes a ref is no update,
// forced or other.
func forced(u gitgw.Update) *bool {
	known := u.Forced == gitgw.ForcedYes
	if u.Action == gitgw.ActionUpdate && u.Forced == gitgw.ForcedUnknown {
		return nil
	}
	return &known
}

// answer is the wire form of the rulings.
type answer struct {
	Version int      `json:"version"`
	Updates []ruling `json:"updates"`
}

type ruling struct {
	Ref     string `json:"ref"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
}

// rulings puts the verdicts in the order of the question, and fails unless there is
// exactly one on each of its refs.
func (a answer) rulings(updates []gitgw.Update) ([]gitgw.Ruling, error) {
	if a.Version != Version {
		return nil, fmt.Errorf("version is %d, want %d", a.Version, Version)
	}
	said := make(map[string]gitgw.Ruling, len(a.Updates))
	for _, u := range a.Updates {
		var kind gitgw.Kind
		switch _, twice := said[u.Ref]; {
		case kind.UnmarshalText([]byte(u.Verdict)) != nil:
			return nil, fmt.Errorf("verdict on %.200q is %.40q, want allow, ask or deny", u.Ref, u.Verdict)
		case twice:
			return nil, fmt.Errorf("two verdicts on %.200q", u.Ref)
		}
		said[u.Ref] = gitgw.Ruling{Kind: kind, Reason: u.Reason}
	}
	rulings := make([]gitgw.Ruling, len(updates))
	for i, u := range updates {
		r, ok := said[u.Ref]
		if !ok {
			return nil, fmt.Errorf("no verdict on %.200q", u.Ref)
		}
		rulings[i] = r
	}
	if len(said) != len(updates) {
		return nil, errors.New("verdicts on refs that are not pushed")
	}
	return rulings, nil
}

var _ gitgw.Source = (*HTTP)(nil)
