package gitgateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/egress"
	"postern/gitgw"
	"postern/gitgw/lookup"
)

func init() {
	caddy.RegisterModule(RulesHTTP{})
}

// RuleSource is what a module of the namespace gitgw.rules must be. The source
// outlives the module, since a push may be under way over a reload.
type RuleSource interface {
	Source() gitgw.Source
}

// RulesHTTP asks a program on this host what may be pushed, once for each push. It
// sends
//
//	{"version": 1, "session": "…", "agent": "…", "workspace": "…", "repository": "github.com/acme/app", "options": [],
//	 "updates": [{"ref": "refs/heads/main", "action": "create|update|delete", "old": "…", "new": "…", "forced": false}]}
//
// in a POST and waits for 200 and a verdict on each of the refs:
//
//	{"version": 1, "updates": [{"ref": "refs/heads/main", "verdict": "allow|ask|deny", "reason": "…"}]}
//
// Anything else, and anything unknown in it, is no answer, and without one the push
// is refused.
type RulesHTTP struct {
	// Where the program listens: unix//PATH, or http://127.0.0.1:PORT/PATH. What is
	// asked names what people work on, and never leaves the host.
	URL string `json:"url"`

	// How long to wait for the answer. Default: 2s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	source *lookup.HTTP
}

// CaddyModule returns the Caddy module information.
func (RulesHTTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "gitgw.rules.http",
		New: func() caddy.Module { return new(RulesHTTP) },
	}
}

// Provision checks the address. Nobody need listen there yet.
func (m *RulesHTTP) Provision(caddy.Context) (err error) {
	if m.URL == "" {
		return errors.New("url is missing")
	}
	url, err := resolve("url", m.URL)
	if err != nil {
		return err
	}
	m.source, err = lookup.NewHTTP(url, time.Duration(m.Timeout))
	return err
}

// Source implements [RuleSource].
func (m *RulesHTTP) Source() gitgw.Source { return m.source }

// Cleanup drops idle connections. A question that is under way is answered.
func (m *RulesHTTP) Cleanup() error {
	if m.source == nil {
		return nil
	}
	return m.source.Close()
}

// UnmarshalCaddyfile sets up the rule source from Caddyfile tokens. Syntax:
//
//	http URL [{
//		timeout DURATION
//	}]
func (m *RulesHTTP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.AllArgs(&m.URL) {
		return egress.Want(d, "rules http unix//PATH|http://127.0.0.1:PORT/PATH [{ timeout DURATION }]")
	}
	// What it says of the address it says with file and line here.
	if _, err := lookup.NewHTTP(m.URL, 0); err != nil {
		return d.WrapErr(err)
	}
	return options(d, "http", map[string]option{"timeout": duration("timeout", &m.Timeout)})
}

// ruleSource makes the source of a configuration that is asked about and not run.
func (h *Handler) ruleSource(ctx caddy.Context) (gitgw.Source, error) {
	if h.RulesRaw == nil {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(h.RulesRaw, &fields); err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	var from string
	if err := json.Unmarshal(fields["from"], &from); err != nil {
		return nil, fmt.Errorf("load rules: from: %w", err)
	}
	delete(fields, "from")
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	mod, err := ctx.LoadModuleByID("gitgw.rules."+from, raw)
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	return mod.(RuleSource).Source(), nil
}

// Interface guards
var (
	_ RuleSource            = (*RulesHTTP)(nil)
	_ caddy.CleanerUpper    = (*RulesHTTP)(nil)
	_ caddy.Provisioner     = (*RulesHTTP)(nil)
	_ caddyfile.Unmarshaler = (*RulesHTTP)(nil)
)
