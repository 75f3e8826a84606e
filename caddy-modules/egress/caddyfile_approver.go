package egress

import (
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// approvers is the namespace of the modules that answer questions.
const approvers = "gitgw.approvers"

// approver reads whom to ask about hosts; the syntax is with App.UnmarshalCaddyfile.
func (p *parser) approver() error {
	if !p.NextArg() {
		return Want(p.Dispenser, "approver queue|http ADDRESS [{ timeout DURATION }]")
	}
	name := p.Val()
	if _, err := caddy.GetModule(approvers + "." + name); err != nil {
		var names []string
		for _, m := range caddy.GetModules(approvers) {
			names = append(names, m.ID.Name())
		}
		if len(names) == 0 {
			return p.Errf("there is no approver %q in this program", name)
		}
		return p.Errf("there is no approver %q; there is %s", name, strings.Join(names, " and "))
	}
	mod, err := caddyfile.UnmarshalModule(p.Dispenser, approvers+"."+name)
	if err != nil {
		return err
	}
	source, ok := mod.(interface{ Remember() time.Duration })
	if ok && source.Remember() != 0 {
		return p.Errf("remember is about pushes: a connection does not outlive its wait; give timeout alone")
	}
	p.app.ApproverRaw = caddyconfig.JSONModuleObject(mod, "by", name, nil)
	return nil
}

// alwaysList reads the file of a policy to which approvals are written. It is looked at
// when the configuration is loaded.
func (p *parser) alwaysList(pol *Policy) error {
	words := p.RemainingArgs()
	if len(words) != 1 {
		return Want(p.Dispenser, "always_list FILE")
	}
	if pol.AlwaysList != "" {
		return p.Errf("always_list is given twice")
	}
	var files []string
	if err := p.listFiles(words, &files); err != nil {
		return err
	}
	pol.AlwaysList = files[0]
	return nil
}
