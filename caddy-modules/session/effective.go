package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"postern/caddy-modules/policy"
)

// maxShown bounds each list of an Effective: a policy may have a million lines, and
// nobody reads them here.
const maxShown = 10_000

// Effective is what a session may reach and why, as of the moment it was asked.
type Effective struct {
	Session  string `json:"session"`
	Policy   string `json:"policy"`
	Network  bool   `json:"network"`
	Enforce  bool   `json:"enforce"`            // false: refusals by the lists are only reported
	Refusing string `json:"refusing,omitempty"` // why everything is refused, if it is
	Default  string `json:"default"`            // of what no rule names: "deny" or "ask"

	// In the order in which they decide.
	AlwaysDeny []RuleAt `json:"alwaysDeny"`
	Deny       []RuleAt `json:"deny"`
	Allow      []RuleAt `json:"allow"` // the session's own rules and grants last
	Ask        []RuleAt `json:"ask"`

	// Omitted is how many rules the lists have beyond what is shown, of which those of
	// two lists are counted apart: a rule that denies is nothing that can be reached.
	Omitted            int `json:"omitted,omitempty"`
	moreAllow, moreAsk int

	until time.Time // the first grant runs out, zero for never

	Grants []Grant  `json:"grants"`
	Limits Caps     `json:"limits"`
	DNS    string   `json:"dns,omitempty"` // how names are answered on lent sockets
	Local  []string `json:"local"`         // hosts that the appliance answers itself
}

// RuleAt is a rule and where it is written.
type RuleAt struct {
	Rule   string `json:"rule"`
	Source string `json:"source"`
}

// Policy says what a session may reach. The error is a *lease.Error.
func (r *Registry) Policy(id string) (Effective, error) {
	s := r.find(id)
	if s == nil {
		return Effective{}, noSession(id)
	}
	v := s.judging()
	t := v.terms
	e := Effective{
		Session: id, Policy: v.policy, Network: t.spec.Network(), Enforce: !v.set.Reports(), Refusing: v.refusing,
		Default: "deny", Grants: t.list(), Limits: v.caps(t), DNS: s.served(), Local: []string{}, until: v.until,
	}
	if v.gen != nil {
		e.Local = append(e.Local, v.gen.LocalHosts...)
	}
	l := v.set.Lists()
	if l.AskAny {
		e.Default = "ask"
	}
	e.AlwaysDeny, _ = e.show(append(policy.Builtins(), l.AlwaysDeny...))
	e.Deny, _ = e.show(l.Deny)
	e.Allow, e.moreAllow = e.show(l.Allow)
	e.Ask, e.moreAsk = e.show(l.Ask)
	return e, nil
}

// show takes the end of a list that is too long: there are the session's own rules.
func (e *Effective) show(rules []policy.Rule) (shown []RuleAt, omitted int) {
	if omitted = max(0, len(rules)-maxShown); omitted > 0 {
		e.Omitted += omitted
		rules = rules[omitted:]
	}
	shown = make([]RuleAt, 0, len(rules))
	for i := range rules {
		shown = append(shown, RuleAt{rules[i].String(), rules[i].Origin.String()})
	}
	return shown, omitted
}

// maxPrompt bounds the text for an agent in bytes; every one of them is read at each
// of its steps.
const maxPrompt = 4 << 10

// Prompt says to an agent what it can reach and what a refusal means.
func (e Effective) Prompt() string {
	var b strings.Builder
	b.WriteString("Network access of this sandbox:\n")
	switch {
	case e.Refusing != "":
		fmt.Fprintf(&b, "Everything is refused at the moment: %s.\n", e.Refusing)
	case !e.Enforce:
		b.WriteString("Every public host can be reached. What no rule allows is noted.\n")
	default:
		b.WriteString("Requests go through a proxy, which the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY). Only these hosts can be reached, on ports 443 and 80 unless a port is named; *.HOST is every name below HOST:\n")
	}
	local := "Answered here: " + strings.Join(e.Local, ", ") + ".\n"
	if len(e.Local) == 0 {
		local = ""
	}
	tail := e.advice()
	if e.Refusing == "" && e.Enforce {
		e.hosts(&b, maxPrompt-b.Len()-len(local)-len(tail))
	}
	b.WriteString(local)
	b.WriteString(tail)
	return b.String()
}

// hosts lists what is allowed within a number of bytes, wildcards first: they say the
// most.
func (e Effective) hosts(b *strings.Builder, room int) {
	rules := make([]string, 0, len(e.Allow))
	for _, r := range e.Allow {
		rules = append(rules, r.Rule)
	}
	slices.SortStableFunc(rules, func(x, y string) int {
		return boolInt(strings.Contains(y, "*")) - boolInt(strings.Contains(x, "*"))
	})
	if len(rules) == 0 {
		b.WriteString("none.\n")
		return
	}
	const more = len("and 1000000 more.\n")
	for i, rule := range rules {
		if room -= len(rule) + len("- \n"); room < more {
			fmt.Fprintf(b, "and %d more.\n", len(rules)-i+e.moreAllow)
			return
		}
		b.WriteString("- " + rule + "\n")
	}
	if e.moreAllow > 0 {
		fmt.Fprintf(b, "and %d more.\n", e.moreAllow)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// advice says what to do about a refusal.
func (e Effective) advice() string {
	var b strings.Builder
	if !e.until.IsZero() {
		fmt.Fprintf(&b, "Some of it is granted until %s.\n", e.until.UTC().Format("15:04 MST"))
	}
	if e.Default == "ask" && e.Enforce && e.Refusing == "" {
		b.WriteString("For other hosts somebody is asked while the request waits.\n")
	} else if len(e.Ask) > 0 && e.Refusing == "" {
		fmt.Fprintf(&b, "For %d further hosts somebody is asked while the request waits.\n", len(e.Ask)+e.moreAsk)
	}
	b.WriteString("A refusal is the status 403 with the header Postern-Reason; its text names the rule and the cure. It is final: do not try again, or another way. If a host is needed, say which, with its port, and why.\n")
	return b.String()
}
