package approve

import (
	"context"
	"errors"

	"postern/gitgw"
	"postern/gitgw/local"
)

// maxAnswer bounds an approver's answer in bytes.
const maxAnswer = 64 << 10

// HTTP asks a program on this host: it POSTs the [gitgw.Question] as JSON and
// waits for 200 and a JSON object
//
//	{"allowed": true, "by": "ada", "reason": "…", "scope": "once"}
//
// An answer of a scope that the question does not offer decides nothing.
//
// The program may take as long as the question's deadline allows, longer than the
// push itself waits; when the pushing client goes away while it waits, or its session
// ends, the request is cancelled.
type HTTP struct {
	client *local.Client
}

// NewHTTP makes an approver for an address as [local.New] takes it.
func NewHTTP(address string) (*HTTP, error) {
	client, err := local.New("approver", address)
	if err != nil {
		return nil, err
	}
	return &HTTP{client: client}, nil
}

// Connected is always true: whether the program is there shows when it is
// asked, and the refusal then says what is wrong.
func (h *HTTP) Connected() bool { return true }

// Close drops idle connections.
func (h *HTTP) Close() error { return h.client.Close() }

// Ask puts the question to the program.
func (h *HTTP) Ask(ctx context.Context, q gitgw.Question) (gitgw.Answer, error) {
	// A pointer tells false from absent: an empty object decides nothing.
	var wire struct {
		Allowed *bool  `json:"allowed"`
		By      string `json:"by"`
		Reason  string `json:"reason"`
		Scope   string `json:"scope"`
	}
	if err := h.client.Ask(ctx, q, &wire, maxAnswer); err != nil {
		return gitgw.Answer{}, err
	}
	if wire.Allowed == nil {
		return gitgw.Answer{}, h.client.Unusable(errors.New("no field allowed"))
	}
	answer := gitgw.Answer{Allowed: *wire.Allowed, By: wire.By, Reason: wire.Reason, Scope: wire.Scope}
	if err := q.Accepts(answer); err != nil {
		return gitgw.Answer{}, h.client.Unusable(err)
	}
	return answer, nil
}

var _ gitgw.Approver = (*HTTP)(nil)
