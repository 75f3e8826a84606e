package egress

import (
	"errors"
	"slices"

	"postern/caddy-modules/session"
)

// AddGateway says that this configuration has a git gateway, for pushes to the
// given hosts, which launchers then send there. Where it has a token, broker
// makes the read tokens of sessions; nil where it has none. A gateway calls this
// while it is provisioned.
//
// One gateway at most may have a token: a read token that a launcher hands back
// after a crash must be revoked where it was made, and does not say where that is.
func (app *App) AddGateway(hosts []string, broker session.Broker) error {
	if len(app.LocalHosts) == 0 {
		return errors.New("the egress block names no local host, so that no session could reach the gateway's site; add `local git.internal`")
	}
	app.mu.Lock()
	defer app.mu.Unlock()
	if broker != nil {
		if app.broker != nil {
			return errors.New("another git_gateway has a token already; sessions get their read tokens from one")
		}
		app.broker = broker
	}
	for _, h := range hosts {
		if !slices.Contains(app.forges, h) {
			app.forges = append(app.forges, h)
		}
	}
	return nil
}
