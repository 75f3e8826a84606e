package gitgw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"postern/gitgw/pack"
)

// inspection is one look into a push's pack, before anything of it leaves.
type inspection struct {
	p     *push
	ctx   context.Context //nolint:containedctx // of this one push
	pack  *pack.Pack      // nil where the push has none
	forge *forgeReader
}

// contentError is why a push is refused for what its pack holds.
type contentError struct {
	code   Code
	ref    string // the ref at fault, "" for all of them
	reason string // for git's report, after the prefix
	detail string // one more line, "" for none
}

func (c *contentError) Error() string { return c.reason }

// cannotTell refuses what could not be judged.
func cannotTell(code Code, ref, what string, err error) error {
	if stop, ok := errors.AsType[*stopped](err); ok {
		return stop
	}
	return &contentError{code: lookCode(err, code), ref: ref, reason: what + ": " + err.Error()}
}

// decidedOf is what the rules of all refs say together.
type decidedOf struct {
	conditions Conditions
	forced     []int // refs whose verdict depends on whether they are forced
}

// note adds one ref's verdict.
func (d *decidedOf) note(i int, v Verdict) {
	d.conditions = d.conditions.and(v.Conditions)
	if v.NeedsForced {
		d.forced = append(d.forced, i)
	}
}

// admit holds the push to what can be said of it without its pack: "" if nothing
// is wrong.
func (p *push) admit() (Code, string) {
	if most := p.asked.conditions.MaxRefs; most > 0 && len(p.head.Updates) > most {
		return CodeMaxRefs, fmt.Sprintf("push names %d refs, at most %d are allowed", len(p.head.Updates), most)
	}
	if p.g.Source != nil && !p.g.Rules.governs(p.up.repo) {
		return "", "" // the source is told of the options
	}
	return CodeOption, p.g.Rules.CheckOptions(p.up.repo, p.head.Options)
}

// inspect looks into the push where a rule needs it. The pack is kept in a file
// meanwhile, and nothing leaves before the verdict. When ok is false the push is
// over and sound says whether the connection is.
func (p *push) inspect(clientCtx context.Context) (sound, ok bool) {
	c := p.asked.conditions
	if len(p.asked.forced) == 0 && !c.content() || p.head.DeletesOnly() {
		return true, true
	}
	if p.g.Approver == nil && len(p.askedRefs()) > 0 {
		// Whatever would be found, it is a refusal.
		return p.approved(clientCtx)
	}
	ctx, cancel := p.limits.within(clientCtx)
	defer cancel()
	if again := p.g.inspections().spent(p.caller.Session, p.limits.Pack.Work, p.limits.Work, p.limits.WorkWindow, time.Now()); again > 0 {
		return p.spentAll(again), false
	}
	if sound, ok := p.spool(ctx); !ok {
		return sound, false
	}
	err, again := p.turn(ctx), time.Duration(0)
	if err == nil {
		again, err = p.look(ctx, c)
	}
	// What follows is no work, and may take as long as the client or an approver wants.
	p.seat.leave()
	if again > 0 {
		return p.spentAll(again), false
	}
	if err != nil && ctx.Err() != nil {
		err = &stopped{p.whyOver(ctx)}
	}
	var no *contentError
	var stop *stopped
	switch {
	case err == nil:
		return true, true
	case errors.As(err, &stop):
		return p.giveUp(stop), false
	case errors.As(err, &no):
		return p.refuseContent(no), false
	}
	p.g.log().Warn("push not looked into", append(p.attrs(err), slog.Int64("pack_bytes", p.kept.size))...)
	return p.fail(Refused, lookCode(err, CodeLookFailed), p.g.policy("push cannot be judged: "+err.Error())), false
}

// look does the look, within what is left of the run's budget; again says when there
// is enough of it.
func (p *push) look(ctx context.Context, c Conditions) (again time.Duration, err error) {
	done, again := p.g.inspections().hold(p.caller.Session, p.limits.Pack.Work, p.limits.Work, p.limits.WorkWindow)
	if done == nil {
		return again, nil
	}
	var used int64
	defer func() { done(used) }()
	in := &inspection{p: p, ctx: ctx, forge: p.reader(ctx)}
	defer in.forge.close()
	return 0, in.run(c, &used) //nolint:contextcheck // it holds the context of the push
}

// spentAll refuses what a run's budget of work does not allow any more.
func (p *push) spentAll(again time.Duration) bool {
	return p.fail(Refused, CodeLooksSpent, p.g.notice("this run's pushes have taken as much work to look into as they may; try again in "+shortTime(again)))
}

// lookCode is the code of an error in looking.
func lookCode(err error, other Code) Code {
	switch {
	case errors.Is(err, pack.ErrObjects):
		return CodeLookObjects
	case errors.Is(err, pack.ErrLarge):
		return CodeLookLarge
	case errors.Is(err, pack.ErrWork):
		return CodeLookWork
	}
	return other
}

// refuseContent answers with what was found. Refs that are not at fault are refused
// with the one that is.
func (p *push) refuseContent(no *contentError) bool {
	var hints []string
	if no.detail != "" {
		hints = []string{p.g.notice(no.detail)}
	}
	recorded := no.reason
	if no.detail != "" {
		recorded += "; " + no.detail
	}
	for i := range p.record.Refs {
		if r := &p.record.Refs[i]; no.ref == "" || r.Ref == no.ref {
			r.Verdict, r.Reason = Deny, p.redact.line(recorded)
		}
	}
	return p.refuse(Refused, no.code, p.g.policy(recorded), hints, func(r PushedRef) string {
		if no.ref != "" && r.Ref != no.ref {
			return p.g.policy("another ref in this push was refused")
		}
		return p.g.policy(no.reason)
	})
}

// run asks every question that the rules have.
func (in *inspection) run(c Conditions, used *int64) error {
	o := pack.Options{Used: used, Limits: in.p.limits.Pack, SHA256: in.p.head.Capabilities.format() == "sha256"}
	// The pack is read once, and whether a rule for force decides shows only in it: what
	// such a rule might look for is looked for, and counts where it does decide.
	scan := in.secretScan(c.and(in.ifForced()))
	if scan != nil {
		o.Blob = scan.blob
	}
	var err error
	if in.pack, err = pack.Open(in.ctx, in.p.kept.file, in.p.kept.size, o); err != nil {
		return err
	}
	for _, i := range in.p.asked.forced {
		if err := in.forced(i); err != nil {
			return err
		}
	}
	// The verdicts may have other conditions by now.
	c = in.p.asked.conditions
	if code, wrong := in.p.admit(); wrong != "" {
		return &contentError{code: code, reason: wrong}
	}
	if most := in.p.packLimit(); most > 0 && in.p.kept.size > most {
		return &contentError{code: CodePackLarge, reason: packSizeError{most}.Error()}
	}
	if c.Secrets {
		if err := scan.verdict(in); err != nil {
			return err
		}
	}
	return in.protect(c.Protect)
}

// ifForced is what would have to hold as well were all refs forced of which it is not
// known.
func (in *inspection) ifForced() Conditions {
	var c Conditions
	for _, i := range in.p.asked.forced {
		u := in.p.head.Updates[i]
		u.Forced = ForcedYes
		c = c.and(in.p.g.decide(in.p.up.repo, u).Conditions)
	}
	return c
}

// forced finds whether an update is a forced one, and decides it again.
func (in *inspection) forced(i int) error {
	u := &in.p.head.Updates[i]
	forced, err := in.isForced(*u)
	if err != nil {
		return cannotTell(CodeForceUnknown, u.Ref, "cannot tell whether this is a force push", err)
	}
	u.Forced = ForcedNo
	r := &in.p.record.Refs[i]
	if forced {
		u.Forced, r.Action = ForcedYes, ActionForce
	}
	v := in.p.g.decide(in.p.up.repo, *u)
	r.Verdict, r.Rule, r.Source, r.Reason = v.Kind, v.Rule, v.Source, v.Reason
	if v.Kind == Deny {
		return &contentError{code: CodeRule, ref: u.Ref, reason: v.Reason, detail: v.Hint}
	}
	in.p.asked.conditions = in.p.asked.conditions.and(v.Conditions)
	return nil
}

// commit reads a commit of the pack. ok is false where the pack does not hold it.
func (in *inspection) commit(id pack.ID) (c pack.CommitHead, ok bool, err error) {
	i, ok := in.pack.Find(id)
	if !ok {
		return c, false, nil
	}
	kind, content, err := in.pack.Object(i)
	if err != nil {
		return c, false, err
	}
	if kind != pack.Commit {
		return c, false, fmt.Errorf("%s is a %s", in.pack.Hex(id), kind)
	}
	c, err = pack.ParseCommit(content)
	return c, err == nil, err
}

// peel follows annotated tags that the pack holds to what they name.
func (in *inspection) peel(id pack.ID) (pack.ID, error) {
	for range 16 {
		i, ok := in.pack.Find(id)
		if !ok {
			return id, nil
		}
		kind, content, err := in.pack.Object(i)
		if err != nil || kind != pack.Tag {
			return id, err
		}
		if id, err = pack.ParseTag(content); err != nil {
			return id, err
		}
	}
	return id, errors.New("a tag of a tag of a tag …")
}

// packStart shows the pack's first bytes.
func (p *push) packStart() ([]byte, error) {
	if p.kept == nil {
		return p.body.peek(12)
	}
	start := make([]byte, min(12, p.kept.size))
	_, err := p.kept.file.ReadAt(start, 0)
	return start, err
}

// packReader is what goes to the forge after the head.
func (p *push) packReader() (from io.Reader, size int64) {
	if p.kept != nil {
		return io.NewSectionReader(p.kept.file, 0, p.kept.size), p.kept.size
	}
	return p.body, -1
}
