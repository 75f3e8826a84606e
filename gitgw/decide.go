package gitgw

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is the decision on one update, with what an operator needs to find
// the rule and a person to understand it.
type Verdict struct {
	Kind Kind
	// Rule is the deciding rule as written, "" when none matched.
	Rule string
	// Source is where that rule or, without one, the repository's block stands.
	Source string
	// Reason is one line for git's output, without prefix.
	Reason string
	// Hint is one more line that says what would be allowed, "" when nothing is.
	Hint string
	// Conditions must hold as well before the update may go on.
	Conditions Conditions
	// NeedsForced says that the verdict would be another one for a forced update:
	// it stands only once Update.Forced is known.
	NeedsForced bool
}

// match is one rule that speaks of an update, with the pattern that matched.
type match struct {
	rule    RefRule
	pattern RefPattern
}

// Decide judges one update of repo. The order, for the rules of the one block
// that governs repo:
//
//  1. No rule, no push.
//  2. A deny that matches stands, whatever else matches.
//  3. Otherwise an ask that matches stands, unless a push rule that matches is
//     narrower: its pattern lies wholly inside the ask's. So `ask **` with
//     `push agent/**` pushes agent branches and asks for the rest, and
//     `push **` with `ask main` asks for main. Where neither pattern contains
//     the other, ask stands.
//  4. Otherwise a push that matches allows.
//
// An update of which it is not known whether it is forced gets the verdict of one
// that is not, with NeedsForced where that matters.
//
// A forced push of a branch is an update first: what kind it is shows in its pack, and
// nothing is looked into that is refused as it begins. So a rule for force alone lets
// nothing through, whoever asks.
func (r *Rules) Decide(repo Repo, u Update) Verdict {
	known := u.Action == ActionForce || u.Action == ActionUpdate && u.Forced == ForcedYes
	if !known && (u.Action != ActionUpdate || u.Forced == ForcedNo) {
		return r.decide(repo, u)
	}
	u.Action = ActionForce
	forced := r.decide(repo, u)
	if known && (forced.Kind == Deny || strings.HasPrefix(u.Ref, "refs/tags/")) {
		return forced
	}
	u.Action = ActionUpdate
	plain := r.decide(repo, u)
	switch {
	case plain.Kind == Deny:
		if forced.Kind != Deny {
			plain.Hint = "a forced push is an update first: a rule has to name both, as in: push main update force"
		}
		return plain
	case known:
		return forced
	}
	// Whoever is asked is told what it is. Otherwise it matters where another rule
	// would decide, which may have other conditions; not every rule has a source.
	plain.NeedsForced = forced.Kind != plain.Kind || plain.Kind == Ask || forced.Rule != plain.Rule || forced.Source != plain.Source ||
		forced.Conditions.String() != plain.Conditions.String()
	return plain
}

// decide judges an update whose action is known.
func (r *Rules) decide(repo Repo, u Update) Verdict {
	block, err := r.block(repo)
	if err != nil {
		return Verdict{Reason: err.Error()}
	}
	if err := checkRef(u.Ref); err != nil {
		return Verdict{Source: block.Source, Reason: err.Error()}
	}
	found := [3][]match{}
	for _, rule := range block.Rules {
		if !rule.speaksOf(u.Action) {
			continue
		}
		// Each pattern stands for itself: a rule may name a wide and a narrow one.
		for _, p := range rule.Refs {
			if p.Match(u.Ref) {
				found[rule.Kind] = append(found[rule.Kind], match{rule, p})
			}
		}
	}
	if denials := found[Deny]; len(denials) > 0 {
		return denials[0].verdict(u, block)
	}
	for _, ask := range found[Ask] {
		narrower := func(push match) bool { return push.pattern.within(ask.pattern) }
		if !slices.ContainsFunc(found[Allow], narrower) {
			return ask.verdict(u, block)
		}
	}
	if pushes := found[Allow]; len(pushes) > 0 {
		return pushes[0].verdict(u, block)
	}
	return Verdict{
		Source: block.Source,
		Reason: refusedFor(u),
		Hint:   block.hint(u),
	}
}

// refusedFor is why an update is refused that no rule speaks of.
func refusedFor(u Update) string {
	if u.Action == ActionForce {
		return "force push refused"
	}
	return "no rule allows " + doing(u)
}

func (m match) verdict(u Update, block RepoRules) Verdict {
	v := Verdict{Kind: m.rule.Kind, Rule: m.rule.String(), Source: m.rule.Source, Reason: m.rule.Reason}
	if v.Kind != Allow {
		v.Hint = block.hint(u)
	}
	if v.Kind != Deny {
		v.Conditions = block.Conditions.and(m.rule.Conditions)
	}
	if v.Reason != "" {
		return v
	}
	switch v.Kind {
	case Allow:
		v.Reason = doing(u) + " is allowed"
	case Ask:
		v.Reason = doing(u) + " needs approval"
	default:
		v.Reason = doing(u) + " is denied"
	}
	if v.Source != "" {
		v.Reason += " (" + v.Source + ")"
	}
	return v
}

// doing names an update as the reasons do: "push to main", "deleting main".
func doing(u Update) string {
	switch u.Action {
	case ActionDelete:
		return "deleting " + shortRef(u.Ref)
	case ActionForce:
		return "force push to " + shortRef(u.Ref)
	default:
	}
	return "push to " + shortRef(u.Ref)
}

// hint lists what the block allows for the same action, so that a person or an
// agent need not try.
func (b RepoRules) hint(u Update) string {
	var allowed []string
	for _, kind := range []Kind{Allow, Ask} {
		for _, rule := range b.Rules {
			if rule.Kind != kind || !rule.speaksOf(u.Action) {
				continue
			}
			for _, p := range rule.Refs {
				if p.Match(u.Ref) {
					continue // it did not help
				}
				text := p.String()
				if kind == Ask {
					text += " (asks first)"
				}
				if !slices.Contains(allowed, text) {
					allowed = append(allowed, text)
				}
			}
		}
	}
	const most = 6
	switch {
	case len(allowed) == 0 && u.Action == ActionDelete:
		return "deletions need a rule that names them, as in: push agent/** delete"
	case len(allowed) == 0 && u.Action == ActionForce:
		return "force pushes need a rule that names them, as in: push agent/** force"
	case len(allowed) == 0:
		return ""
	case len(allowed) > most:
		allowed = append(allowed[:most], fmt.Sprintf("and %d more", len(allowed)-most))
	}
	if u.Action == ActionDelete {
		return "deletions allowed here: " + strings.Join(allowed, ", ")
	}
	if u.Action == ActionForce {
		return "force pushes allowed here: " + strings.Join(allowed, ", ")
	}
	return "allowed here: " + strings.Join(allowed, ", ")
}
