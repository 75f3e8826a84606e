// Package dnsguard is the only resolver of a session: of its proxies, and of
// the stub server that a sandbox may have on port 53.
//
// A name lookup is traffic. The name itself reaches whoever runs the zone, so a
// denied host that is looked up before it is refused has already carried its
// data out. The guard therefore asks the policy first and the network second:
//
//	query → shape → name → policy → type → budget → cache → upstream → chain → addresses
//
// and everything to the right of the step that refuses does not happen.
//
// What comes back is judged as strictly as what goes out. A forwarded query is
// built anew (random ID, port and letter case, an OPT record of our own, no
// option of the client); a reply must match it in all of that. From the reply
// only addresses on the CNAME chain that starts at the asked name are kept, and
// each of them is put before the policy again: an allowed name that points at a
// private, local or metadata address is refused whole, since a name's owner
// must not choose which of our neighbours a session talks to (DNS rebinding).
// Addresses handed out are pinned for their lifetime, so that what was vetted
// is what gets dialled.
//
// # Parts
//
//   - [Guard] holds the configuration: upstreams, limits, modes.
//   - [Store] holds what belongs to sessions and must outlive a configuration:
//     caches, pins, budgets, fake addresses, all keyed by session.
//   - [View] is one session's guard. [View.Resolve] serves its proxies,
//     [View.Answer] one DNS message, and [Server] a socket.
//
// # Limits of what this can do
//
// An allowed wildcard is a channel to the zone's owner: every new name under it
// is a message. The budgets ([Config.WildcardNames], [Config.WildcardBytes])
// put a hard ceiling on how much can leave that way; nothing can make it zero
// but a list without wildcards. Names themselves are not content: what an
// allowed host is told over TLS is outside of any DNS guard.
package dnsguard
