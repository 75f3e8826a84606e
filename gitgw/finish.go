package gitgw

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// mintTime bounds one minting. It is not cut short by the client's death: a
// request cancelled on its way may still make a token, which nobody could
// revoke.
const mintTime = 30 * time.Second

// mint obtains the write token. The error is one line for git's output.
func (p *push) mint(clientCtx context.Context) (Token, error) {
	// A gateway without minter still judges, so that a rule set can be tried.
	if p.g.Minter == nil {
		return Token{}, errors.New("no push token: no token source is configured")
	}
	if err := p.g.budgets.spend(p.caller.Session, p.limits.Mints, time.Now()); err != nil {
		return Token{}, &coded{CodeMints, fmt.Errorf("no push token: %w", err)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(clientCtx), mintTime)
	defer cancel()
	token, err := p.g.Minter.Mint(ctx, p.up.repo, Write)
	if err == nil && token.IsZero() {
		err = &MintError{Reason: "the token source gave none"}
	}
	if err == nil {
		return token, nil
	}
	p.g.log().Warn("no push token", p.attrs(err)...)
	// Only a MintError's words are meant for people; any other error may hold an
	// address or worse.
	reason := "the token source failed"
	if told, ok := errors.AsType[*MintError](err); ok {
		reason = told.Reason
	}
	return Token{}, errors.New("no push token: " + reason)
}

// revoke ends the write token, whatever became of the push and its client.
// Failure is logged and no concern of the client's: the token ends by itself.
func (p *push) revoke(clientCtx context.Context, t Token) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(clientCtx), p.limits.Revoke)
	defer cancel()
	if err := p.g.Minter.Revoke(ctx, t); err != nil {
		p.g.log().Warn("push token was not revoked", append(p.attrs(err), slog.String("token_id", t.ID()))...)
		return
	}
	p.record.Revoked = true
}

// failedPush answers a push that got no 200 from the forge.
func (p *push) failedPush(up *upload, err error) bool {
	var e *upstreamError
	if errors.As(err, &e) {
		p.record.UpstreamStatus = e.status
	}
	p.body.stop()
	if p.caller.ended() {
		return p.cutShort(up)
	}
	late := errors.Is(err, errTooLong)
	if late && !up.whole.Load() {
		return p.tooLong()
	}
	if lost := p.body.err(); lost != nil && !up.whole.Load() {
		// The forge saw the upload end early and changes nothing.
		p.end(Aborted, lost.Error())
		return false
	}
	if p.over.Load() && !up.whole.Load() {
		return p.fail(Refused, CodePackLarge, p.g.policy(packSizeError{p.packLimit()}.Error()))
	}
	p.g.log().Warn("push failed", p.attrs(err)...)
	if bad := p.body.malformed(); bad != nil {
		return p.fail(Malformed, CodePackMalformed, p.g.notice("malformed push: "+bad.Error()))
	}
	// With an HTTP status the forge has said no. Without one, after the last
	// byte, it may have done what it was asked and died then.
	said := err.Error()
	switch {
	case late:
		said = p.limits.tookLong("the push")
	case e != nil:
		said = e.Error()
	}
	if up.whole.Load() && (e == nil || e.status == 0) {
		return p.fail(Unknown, CodeUnknown, p.g.notice(said+"; fetch to see whether the push arrived"))
	}
	return p.fail(Failed, CodeForgeRefused, p.g.notice(said))
}

// brokenReport ends a push whose report is not whole. Whether the refs moved is
// not known, and git must neither hang nor hear that all is well. A connection
// that broke is passed on as one. An answer that ended in good order gets a
// report that names no more refs than the forge did, which git shows as
// `[remote failure] … (remote failed to report status)`. Before the forge had the
// whole push there is no doubt, and the refusal is a plain one.
func (p *push) brokenReport(y *relay, up *upload, err, cut error) bool {
	p.g.log().Warn("report broke off", p.attrs(err)...)
	p.body.stop()
	if p.caller.ended() {
		return p.cutShort(up)
	}
	late := errors.Is(err, errTooLong)
	if late && !up.whole.Load() && y.unpack == "" {
		return p.tooLong()
	}
	if p.over.Load() && !up.whole.Load() && y.unpack == "" {
		return p.fail(Refused, CodePackLarge, p.g.policy(packSizeError{p.packLimit()}.Error()))
	}
	if !up.whole.Load() {
		// The upload ended early for one of three reasons: the client, its
		// compression, or the forge itself.
		switch lost, bad := p.body.err(), p.body.malformed(); {
		case lost != nil:
			p.end(Aborted, lost.Error())
			return false
		case bad != nil && y.unpack == "":
			return p.fail(Malformed, CodePackMalformed, p.g.notice("malformed push: "+bad.Error()))
		case y.unpack == "":
			return p.fail(Failed, CodeForgeBroke, p.g.notice(p.up.forge.Host+" broke off before it had the whole push"))
		}
	}
	said := p.up.forge.Host + " broke off before it had reported"
	if late {
		said = p.limits.tookLong("the push")
	}
	text := p.g.notice(said + "; fetch to see whether the push arrived")
	p.end(Unknown, text)
	p.record.Code = CodeUnknown
	drained := p.body.drain()
	p.rep.progress(text + "\n")
	if cut != nil || drained != nil {
		_ = p.rep.flush()
		return false
	}
	if y.unpack == "" {
		p.rep.line("unpack ok")
	}
	p.rep.end()
	return p.rep.lost == nil
}

// conclude reads the outcome from a complete report.
func (p *push) conclude(y *relay) {
	// One ng makes the push a failure, as git's exit status does; a ref without a
	// word leaves it open.
	p.end(Accepted, "")
	if y.unpack != "ok" {
		p.end(Failed, "unpack "+y.unpack)
	}
	for i := range p.record.Refs {
		switch r := &p.record.Refs[i]; r.Result {
		case "ok":
		case "ng":
			p.end(Failed, r.Ref+": "+r.Message)
			return
		default:
			p.end(Unknown, p.up.forge.Host+" did not report on "+r.Ref)
		}
	}
}
