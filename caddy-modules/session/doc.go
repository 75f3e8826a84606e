// Package session keeps the sessions of a process: who may use the network, from
// where, and by which rules.
//
// A [Registry] belongs to the process and outlives every configuration. Each
// configuration brings a [Generation]: compiled policies, a resolver, limits, a
// logger. [Registry.Push] lets a generation govern, [Registry.Drop] takes it
// away; the newest of those that were pushed and not dropped governs.
//
//   - New connections are judged by the newest generation from the moment it is
//     pushed.
//   - Tunnels that are open are held to it only when an older generation is
//     dropped, for that is what a server does when a reload has succeeded.
//   - Dropping the newest generation is a reload that failed. It cuts nothing:
//     the older generation, which was never told, governs on.
//
// A session is opened through one of two doors, both Unix sockets that ask the
// kernel who knocks. lease.sock takes the listeners of a sandbox from its
// launcher (package lease) and ends the session with the connection. control.sock
// is an HTTP API ([Registry.Handler]) for a host that manages its sandboxes itself
// and wants listeners made for it.
//
// Every session has its own pair of proxies and its own effective policy: the
// named policy, plus the session's own allowlist, computed when a generation is
// pushed and swapped as one pointer. A session whose network is off, or whose
// policy has left the configuration, keeps its listeners and refuses everything
// with a reason, because a refused connection tells a run nothing.
//
// The end of a session is the end of everything that is done in its name: its
// proxies, its token, and what holds its [Life]. One that was ended on request is
// never lent again.
//
// [Network] is how a session's proxies reach what the appliance itself serves:
// sites without a port, which know a session by its connection.
//
// No session is written down. After a crash leased sessions come back by themselves,
// as their launchers lend the same listeners again; a host sees another `born` in
// GET /v1/state and PUTs its sessions again, naming the addresses they had.
package session
