package gitgateway

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"

	"postern/caddy-modules/egress"
	"postern/gitgw"
)

// Conditions hold for pushes besides the rules for their refs. Of a rule's and its
// repository's the stricter counts.
type Conditions struct {
	// The most refs in one push, up to 5,000. Default: 5,000, the gateway's own limit.
	MaxRefs int `json:"max_refs,omitempty"`

	// The most bytes in the pack of one push, from 1 KiB to 2 GiB. Default: no limit,
	// and 2 GiB for a push that a rule has to look into.
	MaxPack int64 `json:"max_pack,omitempty"`

	// `deny` refuses a push that holds what looks like a credential, and names the
	// kind, the file and the commit. Default: nothing is looked for.
	Secrets string `json:"secrets,omitempty"`
}

// leastPack is less than a pack with one commit takes, and so a unit that was forgotten.
const leastPack = 1 << 10

func (c Conditions) compile() (gitgw.Conditions, error) {
	switch {
	case c.MaxRefs < 0:
		return gitgw.Conditions{}, fmt.Errorf("parse max_refs: %d is no number of refs", c.MaxRefs)
	case c.MaxRefs > gitgw.MaxRefs:
		return gitgw.Conditions{}, fmt.Errorf("parse max_refs: %d is more than the %d refs that the gateway takes in any push; leave max_refs out for that limit", c.MaxRefs, gitgw.MaxRefs)
	case c.MaxPack < 0:
		return gitgw.Conditions{}, fmt.Errorf("parse max_pack: %d is no size", c.MaxPack)
	case c.MaxPack > 0 && c.MaxPack < leastPack:
		return gitgw.Conditions{}, fmt.Errorf("parse max_pack: %d bytes hold no push; want 1KiB or more, as in 50MB or 1GiB", c.MaxPack)
	case c.MaxPack > gitgw.MaxLooked:
		return gitgw.Conditions{}, fmt.Errorf("parse max_pack: %s is more than the 2GiB that a rule can look into; leave max_pack out where packs may be larger", humanize.IBytes(uint64(c.MaxPack)))
	case c.Secrets != "" && c.Secrets != "deny":
		return gitgw.Conditions{}, fmt.Errorf("parse secrets: want deny, not %q", c.Secrets)
	}
	return gitgw.Conditions{MaxRefs: c.MaxRefs, MaxPack: c.MaxPack, Secrets: c.Secrets != ""}, nil
}

// unmarshal reads one line; ours is false where it is no condition's.
func (c *Conditions) unmarshal(d *caddyfile.Dispenser) (ours bool, err error) {
	name, given := d.Val(), false
	switch name {
	case "max_refs":
		given = c.MaxRefs != 0
	case "max_pack":
		given = c.MaxPack != 0
	case "secrets":
		given = c.Secrets != ""
	default:
		return false, nil
	}
	if given {
		return true, d.Errf("%s is given twice", name)
	}
	var text string
	if !d.AllArgs(&text) {
		return true, egress.Want(d, map[string]string{"max_refs": "max_refs N", "max_pack": "max_pack SIZE, as in 50MB or 1GiB", "secrets": "secrets deny"}[name])
	}
	switch name {
	case "max_refs":
		if c.MaxRefs, err = strconv.Atoi(text); err != nil || c.MaxRefs < 1 {
			return true, d.Errf("max_refs %q: want a number from 1 to %d", text, gitgw.MaxRefs)
		}
	case "max_pack":
		if c.MaxPack, err = egress.ParseSize("max_pack", text); err != nil {
			return true, d.WrapErr(err)
		}
	default:
		c.Secrets = text
	}
	_, err = c.compile()
	return true, wrap(d, err)
}

// unmarshalContent reads the lines that only a repository has: protected paths and
// push options.
func (r *Repo) unmarshalContent(d *caddyfile.Dispenser) (ours bool, err error) {
	name := d.Val()
	if name != "protect" && name != "options" {
		return false, nil
	}
	words := d.RemainingArgs()
	if len(words) == 0 {
		return true, egress.Want(d, map[string]string{"protect": "protect PATH…, as in deploy/** or **/CODEOWNERS", "options": "options deny|GLOB…"}[name])
	}
	if name == "protect" {
		r.Protect = append(r.Protect, words...)
		_, err = protected(words)
		return true, wrap(d, err)
	}
	if len(words) == 1 && words[0] == "deny" {
		// What holds without the line, written down.
		if len(r.Options) > 0 {
			return true, d.Err("options deny, and options that are let through; write one of the two")
		}
		r.DenyOptions = true
		return true, nil
	}
	if r.DenyOptions {
		return true, d.Err("options deny, and options that are let through; write one of the two")
	}
	r.Options = append(r.Options, words...)
	_, err = optionPatterns(words)
	return true, wrap(d, err)
}

func protected(words []string) ([]gitgw.PathPattern, error) {
	var list []gitgw.PathPattern
	for _, word := range words {
		p, err := gitgw.ParsePathPattern(word)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func optionPatterns(words []string) ([]gitgw.OptionPattern, error) {
	var list []gitgw.OptionPattern
	for _, word := range words {
		if word == "deny" {
			// It would let an option of that name through, and the others beside it.
			return nil, errors.New("options deny stands alone; what is not named is denied anyway")
		}
		p, err := gitgw.ParseOptionPattern(word)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// compileContent adds to a block what the rules for refs do not say.
func (r Repo) compileContent(block *gitgw.RepoRules) error {
	conditions, err := r.Conditions.compile()
	if err != nil {
		return err
	}
	if conditions.Protect, err = protected(r.Protect); err != nil {
		return err
	}
	block.Conditions = conditions
	if r.DenyOptions && len(r.Options) > 0 {
		return fmt.Errorf("deny_options is set, and options are let through")
	}
	block.Options, err = optionPatterns(r.Options)
	return err
}
