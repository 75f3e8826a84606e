package egress

import (
	"fmt"

	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session"
)

// Limits bound what one session may have open at a time and what it may move. What
// exceeds one is refused with its own reason, as 429. Of these, those of the session's
// policy and those that a host has set for the session the smallest counts. Zero is no
// bound.
type Limits struct {
	// Tunnels open at a time.
	Tunnels int `json:"tunnels,omitempty"`

	// Plain requests under way at a time.
	Requests int `json:"requests,omitempty"`

	// Connections opened in a second.
	PerSecond int `json:"per_second,omitempty"`

	// Bytes both ways, from the session's beginning to its end.
	Bytes int64 `json:"bytes,omitempty"`
}

func (l *Limits) validate() error {
	if l.Tunnels < 0 || l.Requests < 0 || l.PerSecond < 0 || l.Bytes < 0 {
		return fmt.Errorf("limits: %+v has a number below zero; leave out what is not bounded", *l)
	}
	return nil
}

// bound sets the limits of all sessions.
func (l *Limits) bound(to *proxy.Limits) error {
	if l == nil {
		return nil
	}
	to.Tunnels, to.Requests, to.PerSecond, to.Bytes = l.Tunnels, l.Requests, l.PerSecond, l.Bytes
	return l.validate()
}

// policyCaps are the limits of policies, by name.
func (app *App) policyCaps() (map[string]session.Caps, error) {
	caps := map[string]session.Caps{}
	for name, pol := range app.Policies {
		if pol == nil || pol.Limits == nil {
			continue
		}
		if err := pol.Limits.validate(); err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		caps[name] = session.Caps(*pol.Limits)
	}
	return caps, nil
}

// limits reads a block of them; the syntax is with App.UnmarshalCaddyfile.
func (p *parser) limits(l *Limits) error {
	counts := map[string]*int{"tunnels": &l.Tunnels, "requests": &l.Requests, "per_second": &l.PerSecond}
	return p.need("limits", func() error {
		name := p.Val()
		switch {
		case counts[name] != nil && *counts[name] != 0, name == "bytes" && l.Bytes != 0:
			return p.Errf("%s is given twice", name)
		case counts[name] != nil:
			return p.count(name, counts[name])
		case name == "bytes":
			var text string
			if !p.AllArgs(&text) {
				return Want(p.Dispenser, "bytes SIZE, as in 500MB or 8GiB")
			}
			size, err := ParseSize(name, text)
			if err != nil {
				return p.WrapErr(err)
			}
			l.Bytes = size
			return nil
		}
		return p.Errf("unrecognized limit %q; want tunnels, requests, per_second or bytes", name)
	})
}
