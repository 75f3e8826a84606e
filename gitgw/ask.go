package gitgw

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// errClientGone ends a push whose client went away while it waited.
var errClientGone = errors.New("the client went away")

// pendingError ends a push whose question stays open without it.
type pendingError struct{ id string }

func (e *pendingError) Error() string { return "approval pending (id " + e.id + "), push again" }

// memory is where the gateway's questions are remembered.
func (g *Gateway) memory() *Approvals {
	if g.Approvals != nil {
		return g.Approvals
	}
	return &g.approvals
}

// inquire finds the question of this same push, made earlier, or puts a new one. It
// is nil when there is nobody to ask.
func (p *push) inquire(refs []askedRef) (q *inquiry, earlier bool) {
	approver, scope := p.g.Approver, p.scopeOf()
	if approver == nil {
		return nil, false
	}
	if q := p.g.memory().claim(scope, refs); q != nil {
		return q, true
	}
	if !approver.Connected() {
		return nil, false
	}
	return p.g.memory().put(approver, scope, p.question(), refs, p.limits.Remember), false
}

// ask waits for the answer to q, showing the client that it waits: a line at once
// and then every Limits.Progress. The lines are also how a dead client is noticed,
// since nothing is read from it meanwhile; TCP holds its pack back for free.
// clientCtx ends when the server itself sees the connection end.
//
// A client that goes away takes its question with it. One that is sent away after
// Limits.Ask does not: the answer is kept for the same push made again. earlier says
// that q is such a question.
func (p *push) ask(clientCtx context.Context, q *inquiry, refs []askedRef, earlier bool) (Answer, error) {
	memory := p.g.memory()
	gone := func() (Answer, error) {
		memory.forget(q)
		return Answer{}, p.whyGone()
	}
	if earlier && q.isAnswered() {
		// Given while no push waited.
		if q.err == nil && q.answer.Allowed {
			by := ""
			if q.answer.By != "" {
				by = " by " + q.answer.By
			}
			p.rep.progress(p.g.notice(p.redact.line("this push was approved"+by+" (question "+q.question.ID+")")) + "\n")
		}
	} else {
		// The first line goes out before anything else happens: a person who sees
		// git stand still must know why within the second.
		p.rep.progress(p.g.notice("waiting for approval of "+p.describe(q.question)) + "\n")
		if p.rep.flush() != nil {
			return gone()
		}
	}
	started := time.Now()
	limit := time.NewTimer(p.limits.Ask)
	defer limit.Stop()
	tick := time.NewTicker(p.limits.Progress)
	defer tick.Stop()
	for {
		select {
		case <-q.answered:
			memory.use(q, refs)
			if clientCtx.Err() != nil {
				return Answer{}, p.whyGone()
			}
			return q.answer, q.err
		case <-tick.C:
			// The first write after the client's death succeeds, as the network has
			// not answered yet; the second fails.
			p.rep.progress(p.g.notice(fmt.Sprintf("waiting for approval (%s)", time.Since(started).Round(time.Second))) + "\n")
			if p.rep.flush() != nil {
				return gone()
			}
		case <-limit.C:
			if !memory.leave(q) {
				return Answer{}, errors.New("no answer within " + shortTime(p.limits.Ask))
			}
			return Answer{}, &pendingError{q.question.ID}
		case <-clientCtx.Done():
			return gone()
		}
	}
}

// question describes the push to whoever decides.
func (p *push) question() Question {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	q := Question{
		ID: hex.EncodeToString(id[:]), Time: time.Now(),
		Session: p.caller.Session, Agent: p.caller.Agent, Workspace: p.caller.Workspace,
		Repository: p.up.repo, Options: p.redact.texts(p.head.Options),
	}
	q.WaitsUntil = q.Time.Add(p.limits.Ask)
	q.Deadline = q.WaitsUntil.Add(p.limits.Remember)
	// All refs, not only those that need a yes: whoever allows one of them lets
	// the others go with it.
	for _, r := range p.record.Refs {
		q.Refs = append(q.Refs, r.RefVerdict)
	}
	return q
}

// describe names what waits, in one short line.
func (p *push) describe(q Question) string {
	var asked []string
	for _, r := range q.Refs {
		if r.Verdict == Ask {
			asked = append(asked, doing(Update{Ref: r.Ref, Action: r.Action}))
		}
	}
	const most = 3
	if len(asked) > most {
		asked = append(asked[:most], fmt.Sprintf("%d more", len(asked)-most))
	}
	return strings.Join(asked, ", ") + " (question " + q.ID + ")"
}

// approved settles the refs that need a yes. When ok is false the push is over
// and sound says whether the connection is.
func (p *push) approved(clientCtx context.Context) (sound, ok bool) {
	refs := p.askedRefs()
	if len(refs) == 0 {
		return true, true
	}
	// One question for the whole push, since it will be all or nothing.
	q, earlier := p.inquire(refs) //nolint:contextcheck // a question may outlive its push
	if q == nil {
		return p.fail(Refused, CodeNoApprover, p.g.policy("needs approval and no approver is connected")), false
	}
	p.record.Question = q.question.ID
	waited := time.Now()
	answer, err := p.ask(clientCtx, q, refs, earlier)
	p.record.Waited = time.Since(waited)
	p.record.Approver = p.redact.line(answer.By)
	var pending *pendingError
	switch {
	case errors.Is(err, errClientGone), errors.Is(err, errRunEnded):
		p.end(Aborted, err.Error())
		return false, false
	case errors.As(err, &pending):
		text := p.g.policy(err.Error())
		hint := "the question stays open for " + shortTime(p.limits.Remember) + "; once it is approved, the same push goes through"
		return p.refuse(Refused, CodePending, text, []string{p.g.notice(hint)}, func(PushedRef) string { return text }), false
	case err != nil:
		p.g.log().Warn("no answer from the approver", append(p.attrs(err), cause(err))...)
		return p.fail(Refused, codeOf(err, CodeUnanswered), p.g.policy("needs approval: "+err.Error())), false
	case !answer.Allowed:
		reason := "approval was refused"
		if answer.By != "" {
			reason += " by " + answer.By
		}
		if answer.Reason != "" {
			reason += ": " + answer.Reason
		}
		return p.fail(Refused, CodeNotApproved, p.g.policy(reason)), false
	}
	return true, true
}

// shortTime writes 10m for ten minutes, where Go writes 10m0s.
func shortTime(d time.Duration) string {
	text := d.String()
	if d >= time.Minute && d%time.Minute == 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	if d >= time.Hour && d%time.Hour == 0 {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
