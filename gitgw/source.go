package gitgw

import (
	"context"
	"errors"
)

// Source is where rules are kept outside the configuration: the program that runs
// the agents. Its answer holds for one push and is never kept. Local rules narrow it:
// of two verdicts the stricter counts.
type Source interface {
	// Rulings judges the updates of one push, and gives one ruling for each, in their
	// order. It takes seconds at most. An error means that nobody has judged them;
	// its text is shown in git's output, so it names the trouble and no path.
	Rulings(ctx context.Context, l Lookup) ([]Ruling, error)
}

// Lookup is one push as a rule source is told of it.
type Lookup struct {
	Session    string
	Agent      string
	Workspace  string
	Repository Repo
	// Options are the push options.
	Options []string
	Updates []Update
}

// Ruling is a rule source's verdict on one update.
type Ruling struct {
	Kind Kind
	// Reason is shown in git's output and to approvers; it may be "".
	Reason string
}

// SourceName stands for the rule source where rules are named.
const SourceName = "rule source"

// decide is the local part of the decision. Without a source it is the whole. A
// source is told whether an update is a forced one, so that has to be known.
func (g *Gateway) decide(repo Repo, u Update) Verdict {
	v := g.decideHere(repo, u)
	if g.Source != nil && u.Action == ActionUpdate && u.Forced == ForcedUnknown && v.Kind != Deny {
		v.NeedsForced = true
	}
	return v
}

func (g *Gateway) decideHere(repo Repo, u Update) Verdict {
	// A block is the whole of its repository's rules: a ref that it does not name is
	// refused, whatever the source says. A repository that no block names has no
	// rules here that could narrow anything.
	if g.Source != nil && !g.Rules.governs(repo) {
		if err := checkRef(u.Ref); err != nil {
			return Verdict{Reason: err.Error()}
		}
		return Verdict{Kind: Allow, Rule: SourceName, Reason: "no rule here names " + repo.FullName()}
	}
	return g.Rules.Decide(repo, u)
}

// governs reports whether some block is about repo.
func (r *Rules) governs(repo Repo) bool {
	if r == nil {
		return false
	}
	for _, b := range r.blocks {
		if b.Pattern.Match(repo) {
			return true
		}
	}
	return false
}

// narrow is what is left of a local verdict when the source has given its own.
func narrow(local Verdict, u Update, host Ruling) Verdict {
	if host.Kind > local.Kind || host.Kind == local.Kind && local.Rule != SourceName {
		return local
	}
	v := Verdict{Kind: host.Kind, Rule: SourceName, Reason: (&redactor{}).line(host.Reason)}
	if v.Reason == "" {
		v.Reason = map[Kind]string{Allow: " is allowed", Ask: " needs approval", Deny: " is denied"}[host.Kind]
		v.Reason = doing(u) + v.Reason + " (" + SourceName + ")"
	}
	return v
}

// Judgement is what was decided of one update.
type Judgement struct {
	Verdict
	// Host is the rule source's own word, "" where it was not asked.
	Host string
}

// Judge decides about updates of one push as the gateway does before it asks
// anybody: by the rules, and by the rule source where they do not refuse already. err
// says why the source gave no answer; then every verdict is a denial.
func (g *Gateway) Judge(ctx context.Context, caller Caller, repo Repo, options []string, updates ...Update) (all []Judgement, err error) {
	denied := false
	for _, u := range updates {
		v := g.decide(repo, u)
		denied = denied || v.Kind == Deny
		all = append(all, Judgement{Verdict: v})
	}
	if g.Source == nil || denied {
		return all, nil
	}
	rulings, err := g.rulings(ctx, caller, repo, options, updates)
	for i, u := range updates {
		if err != nil {
			all[i].Verdict = Verdict{Rule: SourceName, Reason: err.Error()}
			continue
		}
		all[i].Host = rulings[i].Kind.String()
		all[i].Verdict = narrow(all[i].Verdict, u, rulings[i])
	}
	return all, err
}

// rulings asks the source, and holds it to one ruling for each update.
func (g *Gateway) rulings(ctx context.Context, c Caller, repo Repo, options []string, updates []Update) ([]Ruling, error) {
	rulings, err := g.Source.Rulings(ctx, Lookup{
		Session: c.Session, Agent: c.Agent, Workspace: c.Workspace, Repository: repo, Options: options, Updates: updates,
	})
	if err == nil && len(rulings) != len(updates) {
		err = errors.New("the rule source gave no usable answer")
	}
	if err != nil {
		g.log().Warn("no answer from the rule source", append(attrs(c, repo, err), cause(err))...)
	}
	return rulings, err
}

// consult asks the rule source about a push that the local rules do not refuse.
// When ok is false the push is over and sound says whether the connection is.
func (p *push) consult(clientCtx context.Context) (sound, ok bool) {
	if p.g.Source == nil {
		return true, true
	}
	rulings, err := p.g.rulings(clientCtx, p.caller, p.up.repo, p.head.Options, p.head.Updates)
	if err != nil && clientCtx.Err() != nil {
		p.end(Aborted, p.whyGone().Error())
		return false, false
	}
	denied := false
	for i := range p.record.Refs {
		r := &p.record.Refs[i]
		if err != nil {
			// Fail closed: the answer that did not come may have been a no.
			r.Verdict, r.Rule, r.Source, r.Reason = Deny, SourceName, "", err.Error()
			continue
		}
		v := narrow(Verdict{Kind: r.Verdict, Rule: r.Rule, Source: r.Source, Reason: r.Reason}, p.head.Updates[i], rulings[i])
		r.Verdict, r.Rule, r.Source, r.Reason, r.Host = v.Kind, v.Rule, v.Source, v.Reason, rulings[i].Kind.String()
		denied = denied || v.Kind == Deny
	}
	switch {
	case err != nil:
		return p.fail(Refused, CodeSource, p.g.policy(err.Error())), false
	case denied:
		return p.deny(), false
	}
	return true, true
}
