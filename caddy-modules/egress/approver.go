package egress

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"postern/caddy-modules/session"
	"postern/gitgw"
)

// Bounds of what an approver says, in bytes. Refusals carry it in a header.
const (
	maxApproverName   = 64
	maxApproverReason = 256
	maxApproverScope  = 32
)

// ApproverSource is what a module of the namespace gitgw.approvers is to this app. The
// approver outlives the module, as a question does a reload.
type ApproverSource interface {
	Approver() gitgw.Approver
	Name() string
	Wait() time.Duration
}

// Mounter is an approver that is asked over the control socket of a registry. Its module
// takes it from there when it is cleaned up.
type Mounter interface {
	Mount(*session.Registry)
}

// AddApprover says whom this configuration's git gateway asks about pushes: the same
// is asked about hosts, where the egress block names no approver of its own. A gateway
// calls this while it is provisioned. wait is how long pushes wait, zero for the default; a
// host waits no longer than that, nor than 30 s.
func (app *App) AddApprover(name string, a gitgw.Approver, wait time.Duration) {
	if wait <= 0 || wait > session.AskWait {
		wait = session.AskWait
	}
	app.mu.Lock()
	defer app.mu.Unlock()
	app.approvers = append(app.approvers, namedApprover{name, a, wait})
}

// namedApprover is one that may be asked about hosts.
type namedApprover struct {
	name     string
	approver gitgw.Approver
	wait     time.Duration // not above zero: the default
}

// loadApprover loads the app's own approver.
func (app *App) loadApprover() error {
	if app.ApproverRaw == nil {
		return nil
	}
	mod, err := app.ctx.LoadModule(app, "ApproverRaw")
	if err != nil {
		return fmt.Errorf("load approver: %w", err)
	}
	source, ok := mod.(ApproverSource)
	if !ok {
		return fmt.Errorf("load approver: %T answers no questions", mod)
	}
	if m, ok := mod.(Mounter); ok {
		m.Mount(app.registry)
	}
	app.ownApprover = &namedApprover{source.Name(), source.Approver(), source.Wait()}
	return nil
}

// hostApprover is whom to ask about hosts, nil for nobody. It is known when every
// gateway has been provisioned.
func (app *App) hostApprover() (*namedApprover, error) {
	if app.ownApprover != nil {
		return app.ownApprover, nil
	}
	app.mu.Lock()
	defer app.mu.Unlock()
	for _, other := range app.approvers {
		if other.name != app.approvers[0].name {
			return nil, fmt.Errorf("the git gateways ask %s and %s: name the approver of the hosts in the egress block", app.approvers[0].name, other.name)
		}
	}
	if len(app.approvers) == 0 {
		return nil, nil
	}
	return &app.approvers[0], nil
}

// hostAsker puts the questions of sessions to an approver of pushes.
type hostAsker struct{ approver gitgw.Approver }

// Connected implements [session.HostAsker].
func (h hostAsker) Connected() bool { return h.approver.Connected() }

// AskHost implements [session.HostAsker].
func (h hostAsker) AskHost(ctx context.Context, q session.HostQuestion) (session.HostAnswer, error) {
	d := q.Decision
	question := gitgw.Question{
		ID: q.ID, Kind: gitgw.KindEgress, Time: q.Time, WaitsUntil: q.Deadline, Deadline: q.Deadline,
		Session: q.Session, Agent: q.Agent, Workspace: q.Workspace,
		Target: d.Target().String(), Proto: string(q.Proto), Policy: q.Policy,
		Code: d.Code.String(), Reason: d.Reason(), Rule: d.Rule, Source: d.Source,
	}
	for _, s := range q.Scopes {
		question.Scopes = append(question.Scopes, string(s))
	}
	answer, err := h.approver.Ask(ctx, question)
	if err != nil {
		return session.HostAnswer{}, err
	}
	return session.HostAnswer{
		Allowed: answer.Allowed, By: cut(answer.By, maxApproverName), Reason: cut(answer.Reason, maxApproverReason),
		Scope: session.Scope(cut(answer.Scope, maxApproverScope)), // one that was not offered is no answer
	}, nil
}

// cut shortens a text that comes from outside, and takes out what is no text.
func cut(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// Interface guard
var _ session.HostAsker = hostAsker{}
