package gitgw

import (
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Outcome is how a push ended.
type Outcome string

// The outcomes of a push.
const (
	// Accepted: the forge reported every ref as done.
	Accepted Outcome = "accepted"
	// Refused: a rule, an approver or the caller's repositories forbade it.
	Refused Outcome = "refused"
	// Malformed: the request was not a push this gateway reads.
	Malformed Outcome = "malformed"
	// Failed: no token, no forge, or the forge reported a ref as not done.
	Failed Outcome = "failed"
	// Aborted: the client went away before the forge had the whole push.
	Aborted Outcome = "aborted"
	// Unknown: the forge had the whole push and never reported.
	Unknown Outcome = "unknown"
)

// Push is the audit record of one push: exactly one is written for each, also
// when it was refused at the advertisement and so never sent a command.
type Push struct {
	Time       time.Time     `json:"time"`
	Duration   time.Duration `json:"-"` // durationSeconds in JSON
	Waited     time.Duration `json:"-"` // for an approver; waitedSeconds in JSON
	Session    string        `json:"session"`
	Agent      string        `json:"agent,omitempty"`
	Workspace  string        `json:"workspace,omitempty"`
	Repository Repo          `json:"repository"`
	Refs       []PushedRef   `json:"refs"`
	// Options are the push options; some forges act on them.
	Options []string `json:"options,omitempty"`
	Outcome Outcome  `json:"outcome"`
	// Code is why the gateway refused, "" where it did not.
	Code Code `json:"code,omitempty"`
	// Reason is what git printed, or would have.
	Reason string `json:"reason,omitempty"`
	// Question and Approver say which question was asked and who answered.
	Question string `json:"question,omitempty"`
	Approver string `json:"approver,omitempty"`
	// PackBytes counts what went to the forge after the head; Objects is the
	// pack's own count.
	PackBytes int64  `json:"packBytes"`
	Objects   uint32 `json:"objects"`
	// TokenID is the write token's [Token.ID], "" when none was made.
	TokenID string `json:"tokenId,omitempty"`
	// Revoked says that the write token was revoked.
	Revoked bool `json:"revoked,omitempty"`
	// UpstreamStatus is the HTTP status of the forge's answer to the push, 0
	// when it was not asked or did not answer.
	UpstreamStatus int `json:"upstreamStatus,omitempty"`
	// ClientGone says that the client did not wait for the report.
	ClientGone bool `json:"clientGone,omitempty"`
	// ClientAgent is the program the client named.
	ClientAgent string `json:"clientAgent,omitempty"`
}

// PushedRef is one ref of a push: what was decided and what became of it.
type PushedRef struct {
	RefVerdict
	// Result is the forge's word, "ok" or "ng", and "" when there was none.
	Result string `json:"result,omitempty"`
	// Message is the forge's reason for "ng".
	Message string `json:"message,omitempty"`
}

// MarshalJSON writes durations in seconds under names of their own, since a bare
// number of nanoseconds has misled every reader of such logs.
func (p Push) MarshalJSON() ([]byte, error) {
	type plain Push
	return json.Marshal(struct {
		plain
		DurationSeconds float64 `json:"durationSeconds"`
		WaitedSeconds   float64 `json:"waitedSeconds,omitempty"`
	}{plain: plain(p), DurationSeconds: p.Duration.Seconds(), WaitedSeconds: p.Waited.Seconds()})
}

// LogValue is the record as attributes.
func (p Push) LogValue() slog.Value {
	refs := make([]string, 0, min(len(p.Refs), 20))
	for _, r := range p.Refs[:min(len(p.Refs), 20)] {
		refs = append(refs, r.line())
	}
	return slog.GroupValue(
		slog.String("session", p.Session),
		slog.String("agent", p.Agent),
		slog.String("workspace", p.Workspace),
		slog.String("repository", p.Repository.String()),
		slog.String("outcome", string(p.Outcome)),
		slog.String("code", string(p.Code)),
		slog.String("reason", p.Reason),
		slog.Int("ref_count", len(p.Refs)),
		slog.Any("refs", refs),
		slog.Any("options", p.Options),
		slog.Int64("pack_bytes", p.PackBytes),
		slog.Int64("objects", int64(p.Objects)),
		slog.String("token_id", p.TokenID),
		slog.Bool("revoked", p.Revoked),
		slog.Int("upstream_status", p.UpstreamStatus),
		slog.String("question", p.Question),
		slog.String("approver", p.Approver),
		slog.Duration("waited", p.Waited),
		slog.String("client_agent", p.ClientAgent),
		slog.Bool("client_gone", p.ClientGone),
		slog.Duration("duration", p.Duration),
	)
}

// line is one ref in the log: what was decided, from where to where, by which rule,
// and what the forge said.
func (r PushedRef) line() string {
	words := []string{r.Verdict.String(), r.Action.String(), r.Ref, r.Old + ".." + r.New}
	if r.Rule != "" {
		words = append(words, "by "+strconv.Quote(r.Rule))
	}
	if r.Source != "" {
		words = append(words, "at "+r.Source)
	}
	if r.Host != "" {
		words = append(words, "host "+r.Host)
	}
	if r.Result != "" {
		words = append(words, "forge "+r.Result)
	}
	return strings.Join(words, " ")
}
