// Package egress makes Postern's core a part of Caddy: the app egress with its
// Caddyfile block, the admin routes below /egress/, the network sandbox, metrics,
// events and the commands `caddy egress …`.
//
// It is glue. What a host may reach is decided in package policy, connections
// are made in package proxy, and sessions live in package session, none of which
// know Caddy. What is decided here is when a configuration begins and ends to
// govern:
//
//   - Sessions belong to the process. One [session.Registry] is kept in a
//     [caddy.UsagePool]; it outlives every reload and is destroyed with the last
//     configuration that has this app.
//   - Policy belongs to the configuration. Provision compiles a
//     [session.Generation] and opens nothing, so that `caddy validate` is
//     harmless; Start pushes it, Stop and Cleanup drop it.
//   - A generation that is dropped while it is the newest was rolled back: the
//     older one governs again and no tunnel is cut. Live tunnels are held to new
//     rules only when the older generation goes, which is the commit.
//
// Caddy calls Stop only on apps whose Start returned nil, and after a failure
// later than all Starts it calls Cleanup alone. Everything Stop does is therefore
// done by Cleanup again, and is harmless to do twice.
package egress
