package egress

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("egress", parseEgress)
}

// parseEgress reads the global option into the app's JSON.
func parseEgress(d *caddyfile.Dispenser, existing any) (any, error) {
	app := new(App)
	d.Next() // the option's name
	if existing != nil {
		return nil, d.Err("egress is given twice")
	}
	d.Prev()
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: moduleID, Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens. Everything that can
// be checked is checked here, since only here is there a file and a line to
// name. Syntax:
//
//	egress {
//		default_policy NAME
//		local          HOST…
//		always_deny    { RULE… }
//		policy NAME [{
//			baseline
//			allow HOST [PORT…] [http|https] [private] [tcp] …
//			allow { RULE… }
//			list  FILE…
//			deny  HOST [PORT…] …
//			deny  { RULE… ; list FILE… }
//			ask   HOST [PORT…] … | any
//			ask   { RULE… }
//			always_list FILE
//			enforce on|off
//			limits { … }
//		}]
//		dns [ADDR…] [{
//			max_ttl|min_ttl|neg_ttl DURATION
//			deny_rcode NXDOMAIN|REFUSED|SERVFAIL|NODATA
//			cname flatten|strict
//			private reject|drop
//			private_for HOST CIDR…
//			public CIDR…
//			wildcard_names|wildcard_bytes|wildcard_sub|qps|burst NUMBER
//			stub fake [v6]|answer|off
//			same_case
//		}]
//		sessions {
//			ports FIRST-LAST
//		}
//		timeouts {
//			header|hello|dial|idle|total DURATION
//		}
//		approver queue|http ADDRESS [{
//			timeout DURATION
//		}]
//		limits {
//			tunnels|requests|per_second NUMBER
//			bytes SIZE
//		}
//		upstream URL [{
//			auth_file FILE
//			no_proxy  HOST [PORT…] …
//			by        name|address
//		}]
//		sni enforce|log|off
//		sandbox on|off [{
//			launcher PATH
//		}]
//	}
//
// A block of rules has one rule a line, HOST [PORT…] [http|https] [private] [tcp], which is
// also the form of a list file, so that a list is imported as it stands; list reads
// one when the configuration is loaded, which is the better way for a long one. An
// empty block is an error: it is what an import that matches no file leaves. A policy
// without a block allows nothing; one with a block says allow, list, baseline
// (the built-in lists) or ask. Without a policy there is one, agent, with the
// baseline; without always_deny the built-in list is used.
func (app *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option's name
	if d.NextArg() {
		return Want(d, "egress { … }, and nothing on its line")
	}
	segment := d.NextSegment()
	if len(segment) == 1 && d.ValRaw() == "}" { // the segment of an empty block is its name alone
		return emptyBlock(segment[0], "egress")
	}
	if err := checkImports(segment); err != nil {
		return err
	}
	p := parser{Dispenser: caddyfile.NewDispenser(segment), app: app, seen: map[string]bool{}, begin: segment[0]}
	p.Next()
	if _, err := Block(p.Dispenser, "egress", p.option); err != nil {
		return err
	}
	return p.finish()
}

// parser holds what one reading of the block needs besides its result.
type parser struct {
	*caddyfile.Dispenser
	app       *App
	seen      map[string]bool
	begin     caddyfile.Token // the block's name
	defaultAt caddyfile.Token // the argument of default_policy
}

// need is Block for an option that is nothing without one.
func (p *parser) need(name string, line func() error) error {
	if p.NextArg() {
		return p.Errf("%s takes a block, and nothing on its line", name)
	}
	opened, err := Block(p.Dispenser, name, line)
	if err == nil && !opened {
		return p.Errf("%s needs a block", name)
	}
	return err
}

func (p *parser) option() error {
	name := p.Val()
	if name != "policy" {
		if p.seen[name] {
			return p.Errf("%s is given twice", name)
		}
		p.seen[name] = true
	}
	switch name {
	case "default_policy":
		if !p.AllArgs(&p.app.DefaultPolicy) {
			return Want(p.Dispenser, "default_policy NAME")
		}
		p.defaultAt = p.Token()
	case "local":
		return p.local()
	case "always_deny":
		return p.need(name, func() error { return p.ruleLine(&p.app.AlwaysDeny) })
	case "policy":
		return p.policy()
	case "dns":
		return p.dns()
	case "sessions":
		p.app.Sessions = new(Sessions)
		return p.need(name, p.sessionsLine)
	case "timeouts":
		p.app.Timeouts = new(Timeouts)
		return p.need(name, p.timeoutsLine)
	case "limits":
		p.app.Limits = new(Limits)
		return p.limits(p.app.Limits)
	case "upstream":
		return p.upstream()
	case "sandbox":
		return p.sandbox()
	case "approver":
		return p.approver()
	case "sni":
		if !p.AllArgs(&p.app.SNI) {
			return Want(p.Dispenser, "sni enforce|log|off")
		}
		if _, err := parseSNI(p.app.SNI); err != nil {
			return p.WrapErr(err)
		}
	default:
		return p.Errf("unrecognized egress option %q; want default_policy, local, always_deny, policy, dns, sessions, timeouts, limits, upstream, approver, sandbox or sni", name)
	}
	return nil
}

func (p *parser) local() error {
	args := p.RemainingArgs()
	if len(args) == 0 {
		return Want(p.Dispenser, "local HOST…")
	}
	p.app.LocalHosts = args
	if _, err := p.app.locals(); err != nil {
		return p.WrapErr(err)
	}
	return nil
}

func (p *parser) sessionsLine() error {
	switch name := p.Val(); name {
	case "ports":
		if p.app.Sessions.Ports != "" {
			return p.Errf("%s is given twice", name)
		}
		if !p.AllArgs(&p.app.Sessions.Ports) {
			return Want(p.Dispenser, "ports FIRST-LAST, as in 20000-29999")
		}
		if _, _, err := parsePorts(p.app.Sessions.Ports); err != nil {
			return p.WrapErr(err)
		}
	default:
		return p.Errf("unrecognized sessions option %q; want ports", name)
	}
	return nil
}

func (p *parser) timeoutsLine() error {
	t := p.app.Timeouts
	fields := map[string]*caddy.Duration{"header": &t.Header, "hello": &t.Hello, "dial": &t.Dial, "idle": &t.Idle, "total": &t.Total}
	name := p.Val()
	into, ok := fields[name]
	if !ok {
		return p.Errf("unrecognized timeout %q; want header, hello, dial, idle or total", name)
	}
	return p.duration(name, into)
}

// duration reads a positive time once.
func (p *parser) duration(name string, into *caddy.Duration) error {
	if *into != 0 {
		return p.Errf("%s is given twice", name)
	}
	var text string
	if !p.AllArgs(&text) {
		return Want(p.Dispenser, name+" DURATION, as in 10s")
	}
	v, err := ParseTime(name, text)
	if err != nil {
		return p.WrapErr(err)
	}
	*into = v
	return nil
}

// finish checks what needs the whole block.
func (p *parser) finish() error {
	if _, err := p.app.defaultPolicy(); err != nil {
		if p.defaultAt.File != "" {
			return At(p.defaultAt, err)
		}
		return At(p.begin, err)
	}
	// What no single rule shows. The errors name the places of the rules, and the end of
	// the block is none of them.
	_, _, err := p.app.compile(nil, false)
	return err
}

// Interface guard
var _ caddyfile.Unmarshaler = (*App)(nil)
