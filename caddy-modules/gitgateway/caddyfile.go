package gitgateway

import (
	"encoding/json"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"postern/caddy-modules/egress"
	"postern/gitgw"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("git_gateway", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("git_gateway", httpcaddyfile.Before, "respond")
}

func parseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return handler, nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	git_gateway {
//		token    FROM [ARG…] [{ … }]
//		rules    FROM [ARG…] [{ … }]
//		approver BY [ARG…] [{ … }]
//		forge HOST [{
//			api URL
//			git URL
//		}]
//		repo HOST/OWNER/NAME [{
//			push|ask|deny REF… [create|update|delete|force…] [{
//				reason TEXT
//				max_refs N
//				max_pack SIZE
//				secrets deny
//			}]
//			max_refs N
//			max_pack SIZE
//			secrets deny
//			protect PATH…
//			options deny|GLOB…
//		}]
//		lfs on|off
//		spool DIR [{
//			total SIZE
//			run   SIZE
//		}]
//		prefix TEXT
//	}
//
// The options of token, rules and approver are those of the modules
// gitgw.minters.FROM, gitgw.rules.FROM and gitgw.approvers.BY. A repo without a block
// may not be pushed to.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	h.Places.Gateway = egress.Origin(d).String()
	if d.NextArg() {
		return egress.Want(d, "git_gateway { … }, and nothing on its line")
	}
	seen := map[string]bool{}
	opened, err := egress.Block(d, "git_gateway", func() error {
		name := d.Val()
		if name != "repo" && name != "forge" {
			if seen[name] {
				return d.Errf("%s is given twice", name)
			}
			seen[name] = true
		}
		switch name {
		case "token":
			return guest(d, "gitgw.minters", "from", &h.TokenRaw, &h.Places.Token)
		case "rules":
			return guest(d, "gitgw.rules", "from", &h.RulesRaw, &h.Places.Rules)
		case "approver":
			return guest(d, "gitgw.approvers", "by", &h.ApproverRaw, &h.Places.Approver)
		case "forge":
			return h.unmarshalForge(d)
		case "repo":
			return h.unmarshalRepo(d)
		case "lfs":
			return h.unmarshalLFS(d)
		case "spool":
			return h.unmarshalSpool(d)
		case "prefix":
			return h.unmarshalPrefix(d)
		}
		return d.Errf("unrecognized git_gateway option %q; want token, rules, approver, forge, repo, lfs, spool or prefix", name)
	})
	if err != nil {
		return err
	}
	if !opened {
		return d.Err("git_gateway needs a block")
	}
	// What blocks say together: the same repository twice, one of a forge that is not there.
	// The errors name the blocks' places, and the end of the directive is none of them.
	_, _, err = h.compile()
	return err
}

// guest reads the options of a module and keeps them as its JSON.
func guest(d *caddyfile.Dispenser, namespace, key string, into *json.RawMessage, place *string) error {
	noun := d.Val()
	*place = egress.Origin(d).String()
	var names []string
	for _, m := range caddy.GetModules(namespace) {
		names = append(names, m.ID.Name())
	}
	if !d.NextArg() {
		return egress.Want(d, noun+" "+strings.Join(names, "|")+" [ARG…] [{ … }]")
	}
	name := d.Val()
	if _, err := caddy.GetModule(namespace + "." + name); err != nil {
		return d.Errf("unknown %s %q; want %s", noun, name, strings.Join(names, ", "))
	}
	mod, err := caddyfile.UnmarshalModule(d, namespace+"."+name)
	if err != nil {
		return err
	}
	*into = caddyconfig.JSONModuleObject(mod, key, name, nil)
	return nil
}

func (h *Handler) unmarshalForge(d *caddyfile.Dispenser) error {
	var f Forge
	if !d.AllArgs(&f.Host) {
		return egress.Want(d, "forge HOST [{ api URL; git URL }]")
	}
	if _, err := compileForges(append(h.Forges, f)); err != nil {
		return d.WrapErr(err)
	}
	_, err := egress.Block(d, "forge "+f.Host, func() error {
		fields := map[string]*string{"api": &f.API, "git": &f.Git}
		name := d.Val()
		into, ok := fields[name]
		switch {
		case !ok:
			return d.Errf("unrecognized forge option %q; want api or git", name)
		case *into != "":
			return d.Errf("%s is given twice", name)
		case !d.AllArgs(into):
			return egress.Want(d, name+" URL")
		case *into == "":
			return d.Errf("%s is empty; want %s URL", name, name)
		}
		_, err := gitgw.NewForge(f.Host, f.API, f.Git)
		return wrap(d, err)
	})
	h.Forges = append(h.Forges, f)
	return err
}

func (h *Handler) unmarshalRepo(d *caddyfile.Dispenser) error {
	var r Repo
	if !d.AllArgs(&r.Name) {
		return egress.Want(d, "repo HOST/OWNER/NAME [{ … }]")
	}
	if _, err := gitgw.ParseRepoPattern(r.Name); err != nil {
		return d.WrapErr(err)
	}
	r.From = egress.Origin(d).String()
	_, err := egress.Block(d, "repo "+r.Name, func() error {
		if ours, err := r.unmarshal(d); ours {
			return err
		}
		if ours, err := r.unmarshalContent(d); ours {
			return err
		}
		rule, err := unmarshalRefRule(d)
		r.Rules = append(r.Rules, rule)
		return err
	})
	h.Repos = append(h.Repos, r)
	return err
}

func unmarshalRefRule(d *caddyfile.Dispenser) (RefRule, error) {
	rule := RefRule{Verdict: d.Val(), From: egress.Origin(d).String()}
	if _, err := gitgw.ParseRuleWord(rule.Verdict); err != nil {
		return rule, d.Errf("unrecognized repo option %q; want push, ask, deny, max_refs, max_pack, secrets, protect or options", rule.Verdict)
	}
	begin, words := d.Token(), d.RemainingArgs()
	if len(words) == 0 {
		return rule, egress.Want(d, rule.Verdict+" REF… [create|update|delete|force…] [{ … }]")
	}
	if _, err := gitgw.ParseRefRule(rule.Verdict, words, rule.From); err != nil {
		return rule, d.WrapErr(err)
	}
	for _, w := range words {
		if new(gitgw.Action).UnmarshalText([]byte(w)) == nil {
			rule.Actions = append(rule.Actions, w)
		} else {
			rule.Refs = append(rule.Refs, w)
		}
	}
	_, err := egress.Block(d, rule.Verdict, func() error {
		if ours, err := rule.unmarshal(d); ours {
			return err
		}
		switch name := d.Val(); {
		case name != "reason":
			return d.Errf("unrecognized rule option %q; want reason, max_refs, max_pack or secrets", name)
		case rule.Reason != "":
			return d.Errf("%s is given twice", name)
		case !d.AllArgs(&rule.Reason):
			return egress.Want(d, `reason TEXT, in quotes where it has blanks: reason "ask the release team"`)
		}
		return wrap(d, checkLine("reason", rule.Reason))
	})
	if err != nil {
		return rule, err
	}
	if _, err = rule.compile(rule.From); err != nil {
		return rule, egress.At(begin, err)
	}
	return rule, nil
}

func (h *Handler) unmarshalPrefix(d *caddyfile.Dispenser) error {
	if !d.AllArgs(&h.Prefix) {
		return egress.Want(d, `prefix TEXT, in quotes where it has blanks: prefix "Acme policy"`)
	}
	return wrap(d, checkLine("prefix", h.Prefix))
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ caddy.Module          = Handler{}
)
