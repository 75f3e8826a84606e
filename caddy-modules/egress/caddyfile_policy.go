package egress

import (
	"fmt"
	"regexp"
)

// policyName is what a session may name; the same bytes as in package lease.
var policyName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// policy reads one policy; the syntax is with App.UnmarshalCaddyfile.
func (p *parser) policy() error {
	var name string
	begin := p.Token()
	if !p.AllArgs(&name) {
		return Want(p.Dispenser, "policy NAME [{ … }]")
	}
	if !policyName.MatchString(name) {
		return p.Errf("%q is not a policy name (1 to 64 of A-Z a-z 0-9 _ - .)", name)
	}
	if p.app.Policies[name] != nil {
		return p.Errf("policy %s is given twice", name)
	}
	pol := new(Policy)
	opened, err := Block(p.Dispenser, "policy "+name, func() error { return p.policyLine(pol) })
	if err != nil {
		return err
	}
	if opened && len(pol.Allow) == 0 && !pol.Baseline {
		// The baseline must not come by itself: taking the last allow line away
		// would then open more than it had.
		return At(begin, fmt.Errorf("policy %s has neither allow nor baseline: name one, or leave the block out to allow nothing", name))
	}
	if p.app.Policies == nil {
		p.app.Policies = map[string]*Policy{}
	}
	p.app.Policies[name] = pol
	return nil
}

func (p *parser) policyLine(pol *Policy) error {
	switch name := p.Val(); name {
	case "baseline":
		if p.NextArg() {
			return Want(p.Dispenser, "baseline, and nothing on its line")
		}
		pol.Baseline = true
	case "allow":
		return p.rules(name, &pol.Allow)
	case "deny":
		return p.rules(name, &pol.Deny)
	default:
		return p.Errf("unrecognized policy option %q; want baseline, allow or deny", name)
	}
	return nil
}

// rules reads either form, HOST… on the line or a block of rules.
func (p *parser) rules(name string, into *[]Rule) error {
	begin, words := p.Token(), p.RemainingArgs()
	if len(words) == 0 {
		return p.need(name, func() error { return p.ruleLine(into) })
	}
	if belongs(words[0]) {
		return p.Errf("%s names %q before any host", name, words[0])
	}
	from := Origin(p.Dispenser)
	for i := 0; i < len(words); {
		// Ports and flags belong to the host before them.
		end := i + 1
		for end < len(words) && belongs(words[end]) {
			end++
		}
		rule, err := parseRuleWords(words[i:end], from)
		if err != nil {
			return p.WrapErr(err)
		}
		*into = append(*into, rule)
		i = end
	}
	if opened, err := Block(p.Dispenser, name, func() error {
		return At(begin, fmt.Errorf("%s takes hosts on its line or a block, not both", name))
	}); err != nil || opened {
		return err
	}
	return nil
}

// belongs reports whether a word is a part of the rule whose host stands before.
func belongs(word string) bool {
	return isDigits(word) || word == flagPrivate || word == flagTCP
}

// ruleLine reads one line of a block of rules.
func (p *parser) ruleLine(into *[]Rule) error {
	from := Origin(p.Dispenser)
	rule, err := parseRuleWords(append([]string{p.Val()}, p.RemainingArgs()...), from)
	if err != nil {
		return p.WrapErr(err)
	}
	*into = append(*into, rule)
	return nil
}
