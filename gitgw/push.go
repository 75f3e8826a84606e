package gitgw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// push is one POST to git-receive-pack on its way through the gateway.
type push struct {
	g      *Gateway
	caller Caller
	up     *upstream
	limits Limits
	body   *clientBody
	rep    *reporter
	redact redactor
	head   *Head
	hints  []string // what the rules would allow, for the refs they deny
	asked  decidedOf
	kept   *keptPack   // the pack, where a rule looks into it
	seat   *seat       // while it is looked into
	over   atomic.Bool // the pack that is streamed exceeds its limit
	record Push
}

// receivePack handles a push from its first byte to its audit record.
func (g *Gateway) receivePack(w http.ResponseWriter, r *http.Request, caller Caller, up *upstream) {
	started := time.Now()
	limits := g.Limits.withDefaults()
	rc := http.NewResponseController(w)
	// Without it, Go's server reads the body itself before the first answer. On
	// other protocols the two directions are independent anyway.
	_ = rc.EnableFullDuplex()
	body, err := newClientBody(rc, r, limits.Stall)
	p := &push{g: g, caller: caller, up: up, limits: limits, body: body, rep: newReporter(w, rc, limits.Stall)}
	p.record = Push{
		Time: started, Session: caller.Session, Agent: caller.Agent, Workspace: caller.Workspace,
		Repository: up.repo,
	}
	// The record is written after the token's end and before the connection's,
	// whatever the end was.
	unbind := p.bind()
	defer p.free() // also when something panics
	sound := p.run(r.Context(), err)
	p.free()
	unbind()
	p.record.Duration = time.Since(started)
	p.record.ClientGone = p.rep.lost != nil || p.body.err() != nil || r.Context().Err() != nil && !caller.ended()
	// A probe has no outcome and no record.
	if p.record.Outcome != "" {
		p.redact.scrub(&p.record)
		g.recorded(p.record)
	}
	_ = rc.SetWriteDeadline(time.Time{})
	if !sound || p.rep.begun && !p.rep.done {
		// Closing the connection is the only honest end for a report that cannot
		// be finished, and for a client that is still sending.
		panic(http.ErrAbortHandler)
	}
}

// run takes the push through its stages. It reports whether the connection may
// be used on. clientCtx ends with the client's connection.
func (p *push) run(clientCtx context.Context, encoding error) bool {
	if encoding != nil {
		return p.malformed(&HeadError{Reason: encoding.Error(), Head: &Head{}})
	}
	// Nothing has been answered yet: until the head is read, what the client can
	// understand is not known.
	head, err := readHead(p.body, p.limits)
	var bad *HeadError
	switch {
	case errors.As(err, &bad):
		return p.malformed(bad)
	case err != nil:
		p.end(Aborted, err.Error())
		return false
	}
	p.head = head
	p.rep.shape(head.Capabilities)
	p.record.ClientAgent, p.record.Options = p.redact.text(head.Capabilities.Agent), head.Options
	if head.Empty() {
		// The credential probe of a large push, or a shallow clone with nothing
		// new. There is nothing to report on, so there is no report.
		err := p.body.drain()
		p.rep.begin()
		p.rep.done = true
		return p.rep.flush() == nil && err == nil
	}
	if !p.judge() {
		return p.deny()
	}
	if code, wrong := p.admit(); wrong != "" {
		return p.fail(Refused, code, p.g.policy(wrong))
	}
	leave, ok := p.g.budgets.enter(p.caller.Session, p.limits.Pushes)
	if !ok {
		return p.fail(Refused, CodePushes, p.g.notice(fmt.Sprintf("%d pushes of this run are under way already; push again when one has ended", p.limits.Pushes)))
	}
	defer leave()
	if sound, ok := p.inspect(clientCtx); !ok {
		return sound
	}
	if sound, ok := p.consult(clientCtx); !ok {
		return sound
	}
	if sound, ok := p.approved(clientCtx); !ok {
		return sound
	}
	// Twelve bytes tell a pack from the middle of one, before a token is made for
	// it. git starts over in mid-pack after some broken connections.
	if !head.DeletesOnly() {
		start, err := p.packStart()
		if err != nil && p.body.err() != nil {
			p.end(Aborted, p.body.err().Error())
			return false
		}
		if p.record.Objects, err = packObjects(start); err != nil {
			return p.fail(Malformed, CodePackMalformed, p.g.notice("malformed push: "+err.Error()))
		}
	}
	return p.forward(clientCtx)
}

// free gives back what was taken to look into the push. It may be called again.
func (p *push) free() {
	p.kept.close()
	if p.seat != nil {
		p.seat.leave()
	}
}

// end notes how the push ended.
func (p *push) end(outcome Outcome, reason string) {
	p.record.Outcome, p.record.Reason = outcome, p.redact.line(reason)
}

// judge asks the rules about every ref and reports whether none is denied. The
// decision is about exactly the head that will be encoded for the forge.
func (p *push) judge() bool {
	ours := p.caller.mayName(p.up.repo)
	// Rules are asked only about repositories that are the caller's: their reasons
	// would tell a run what other repositories there are.
	clean := ours && p.head.Capabilities.reports()
	p.record.Refs = make([]PushedRef, len(p.head.Updates))
	for i, u := range p.head.Updates {
		v := Verdict{Reason: p.g.foreign(p.up.repo)}
		if ours {
			v = p.g.decide(p.up.repo, u)
		}
		p.record.Refs[i] = PushedRef{RefVerdict: RefVerdict{
			Ref: u.Ref, Action: u.Action, Old: u.Old, New: u.New,
			Verdict: v.Kind, Rule: v.Rule, Source: v.Source, Reason: v.Reason,
		}}
		if v.Kind == Deny {
			clean = false
			p.hint(v.Hint)
		}
		if u.Forced == ForcedYes {
			p.record.Refs[i].Action = ActionForce
		}
		p.asked.note(i, v)
	}
	return clean
}

// deny refuses the whole push because judge found a reason to: naming the refs
// at fault, and saying of the others that they were refused with them. Half a
// push is harder to understand than none, and the refused objects would reach
// the forge with the other half.
func (p *push) deny() bool {
	if !p.caller.mayName(p.up.repo) {
		return p.fail(Refused, CodeForeign, p.g.notice(p.g.foreign(p.up.repo)))
	}
	denied := func(r PushedRef) bool { return r.Verdict == Deny }
	first := slices.IndexFunc(p.record.Refs, denied)
	if first < 0 {
		// Every rule agreed, but the client could not be told what became of it.
		return p.fail(Refused, CodeNoReport, p.g.notice("this client asks for no status report; a push without one is not accepted"))
	}
	return p.refuse(Refused, CodeRule, p.g.policy(p.record.Refs[first].Reason), p.hints, func(r PushedRef) string {
		if denied(r) {
			return p.g.policy(r.Reason)
		}
		return p.g.policy("another ref in this push was refused")
	})
}

// hint gathers a few distinct hints.
func (p *push) hint(text string) {
	if text != "" && len(p.hints) < 3 && !slices.Contains(p.hints, p.g.notice(text)) {
		p.hints = append(p.hints, p.g.notice(text))
	}
}

// fail refuses every ref with the same words.
func (p *push) fail(outcome Outcome, code Code, text string) bool {
	return p.refuse(outcome, code, text, nil, func(PushedRef) string { return text })
}

// refuse reads the request to its end and then answers with a complete report.
// Answered earlier, git takes the answer for a broken connection and prints
// "Everything up-to-date".
func (p *push) refuse(outcome Outcome, code Code, reason string, hints []string, why func(PushedRef) string) bool {
	p.end(outcome, reason)
	p.record.Code = code
	p.free()                                                        // a client may take its time to send the rest
	if len(hints) == 0 || code != CodeRule && code != CodePending { // whose hints are the cure
		hints = append(slices.Clip(hints), p.g.notice(code.cure()))
	}
	drained := p.body.drain()
	// Before the report, so that git prints them above its table.
	for _, h := range hints {
		p.rep.progress(p.redact.line(h) + "\n")
	}
	if !p.rep.status {
		p.rep.fatal(p.redact.line(reason))
		return drained == nil && p.rep.lost == nil
	}
	// "unpack" with anything but ok would add an error line that says less.
	p.rep.line("unpack ok")
	for _, r := range p.record.Refs {
		p.rep.line("ng " + r.Ref + " " + p.redact.line(why(r)))
	}
	p.rep.end()
	return drained == nil && p.rep.lost == nil
}

// malformed refuses a push whose head could not be read, in the shape the
// client asked for as far as that was read.
func (p *push) malformed(bad *HeadError) bool {
	text := p.g.notice(bad.Error())
	p.head = bad.Head
	p.record.ClientAgent = bad.Head.Capabilities.Agent
	for _, ref := range bad.Refs {
		p.record.Refs = append(p.record.Refs, PushedRef{RefVerdict: RefVerdict{Ref: ref, Reason: bad.Reason}})
	}
	p.rep.shape(bad.Head.Capabilities)
	if !p.rep.status && p.rep.band == 0 {
		// Nothing was read that says what the client understands. Side-band 3 is
		// what every current client asks for and shows.
		p.rep.band = maxSideBand64k
	}
	return p.refuse(Malformed, CodeHeadMalformed, text, []string{text}, func(PushedRef) string { return text })
}
