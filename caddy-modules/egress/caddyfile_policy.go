package egress

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"postern/caddy-modules/policy"
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
	if opened && pol.opensNothing() {
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
		return p.rules(name, &pol.Allow, &pol.AllowFiles)
	case "deny":
		return p.rules(name, &pol.Deny, &pol.DenyFiles)
	case "list":
		return p.listFiles(p.RemainingArgs(), &pol.AllowFiles)
	case "ask":
		return p.ask(pol)
	case "enforce":
		if pol.Enforce != "" {
			return p.Errf("enforce is given twice")
		}
		if !p.AllArgs(&pol.Enforce) {
			return Want(p.Dispenser, "enforce on|off")
		}
		if _, err := parseEnforce(pol.Enforce); err != nil {
			return p.WrapErr(err)
		}
	case "always_list":
		return p.alwaysList(pol)
	case "limits":
		if pol.Limits != nil {
			return p.Errf("limits is given twice")
		}
		pol.Limits = new(Limits)
		return p.limits(pol.Limits)
	default:
		return p.Errf("unrecognized policy option %q; want baseline, allow, list, deny, ask, always_list, limits or enforce", name)
	}
	return nil
}

// opensNothing says that a policy names nothing that it would let through, ask about
// or report.
func (pol *Policy) opensNothing() bool {
	return len(pol.Allow)+len(pol.AllowFiles)+len(pol.Ask) == 0 && !pol.Baseline && !pol.AskAny && pol.Enforce != enforceOff
}

// ask reads what is asked about: rules as in allow, or the word any.
func (p *parser) ask(pol *Policy) error {
	if args := p.CountRemainingArgs(); args == 1 && p.NextArg() {
		if p.Val() == "any" {
			if pol.AskAny {
				return p.Errf("ask any is given twice")
			}
			pol.AskAny = true
			return nil
		}
		p.Prev()
	}
	return p.rules("ask", &pol.Ask, nil)
}

// listFiles takes the paths of list files. The files are read when the configuration
// is loaded, not here: what is long should not go through the adapter. A path that is
// not absolute is meant from the Caddyfile's folder, as in an import, wherever the
// configuration is loaded later.
func (p *parser) listFiles(paths []string, into *[]string) error {
	if len(paths) == 0 {
		return Want(p.Dispenser, "list FILE…")
	}
	for _, path := range paths {
		if path == "" {
			return p.Errf("list names no file")
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(p.File()), path)
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return p.Errf("find the list %s: %w", path, err)
		}
		if slices.Contains(*into, path) {
			return p.Errf("the list %s is given twice", path)
		}
		*into = append(*into, path)
	}
	return nil
}

// rules reads either form, HOST… on the line or a block of rules, in which a line
// "list FILE…" names files where files is not nil.
func (p *parser) rules(name string, into *[]Rule, files *[]string) error {
	begin, words := p.Token(), p.RemainingArgs()
	if len(words) == 0 {
		return p.need(name, func() error {
			from, words := Origin(p.Dispenser), append([]string{p.Val()}, p.RemainingArgs()...)
			// Ports, flags or nothing after it make it a host of that name.
			if files != nil && words[0] == "list" && len(words) > 1 && !belongs(words[1]) {
				return p.listFiles(words[1:], files)
			}
			return p.takeRule(words, from, into)
		})
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
	return isDigits(word) || slices.Contains([]string{flagHTTP, flagHTTPS, flagPrivate, flagTCP}, word)
}

// ruleLine reads one line of a block of rules.
func (p *parser) ruleLine(into *[]Rule) error {
	from, words := Origin(p.Dispenser), append([]string{p.Val()}, p.RemainingArgs()...)
	return p.takeRule(words, from, into)
}

func (p *parser) takeRule(words []string, from policy.Origin, into *[]Rule) error {
	rule, err := parseRuleWords(words, from)
	if err != nil {
		return p.WrapErr(err)
	}
	*into = append(*into, rule)
	return nil
}
