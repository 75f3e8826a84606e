// Package gitgateway makes the push gateway a part of Caddy: the handler
// http.handlers.git_gateway with its Caddyfile directive, the namespaces
// gitgw.minters (github_app, static, command), gitgw.approvers (http, queue) and
// gitgw.rules (http), and the command `caddy git check`.
//
// It is glue. How a push is read, judged, refused and relayed is decided in
// package gitgw, which knows neither Caddy nor sessions. Here a request becomes
// that of a session: a site bound to the network `sandbox` is reached only
// through a session's own proxy, and such a connection's remote address is the
// session's id. Who has no session is no caller, and is refused.
//
// A request outlives the configuration it began with, since Caddy does not wait
// for requests in flight when it reloads. So nothing a request uses is torn down
// by Cleanup: a push that has begun ends with the rules, the minter and the
// approver it began with, and its token is revoked by the minter that made it.
package gitgateway
