// Package caddymodules adds Postern to a Caddy build: the app egress, the
// handler git_gateway with its minters and approvers, the network sandbox, the
// admin routes and the commands `caddy egress` and `caddy git`.
//
// It holds imports and nothing else, so that it can be given to xcaddy as it is:
//
//	xcaddy build --with postern/caddy-modules
//
// A build made that way lacks only what must happen before any module exists:
// [postern/caddy-modules/caddy] makes the run directory and moves the admin
// endpoint into it.
package caddymodules

import (
	// The app, its admin routes, its network and its commands.
	_ "postern/caddy-modules/egress"
	// The handler, the minters and the approvers.
	_ "postern/caddy-modules/gitgateway"
)
