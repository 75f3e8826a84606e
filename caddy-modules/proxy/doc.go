// Package proxy carries the traffic of sandboxed runs: an HTTP proxy, a SOCKS5
// proxy and a door for clients that know of no proxy, over one gate.
//
// [Gate.Open] is the only way out. It takes a [policy.Target], asks the policy,
// looks the name up only when the policy allows it, vets every address of the
// answer, dials a vetted address, and asks once more when the socket is about to
// connect. [Server] puts the front ends of a session before it:
//
//   - HTTP: CONNECT (RFC 9110 section 9.3.6) and plain http:// in absolute-form
//     (RFC 9112 section 3.2.2). Each request of a kept connection is judged alone.
//   - SOCKS5: CONNECT without authentication (RFC 1928). The listener is the
//     identity; there is nothing to log in to.
//   - Transparent: connections to made-up addresses, each of which stands for a
//     name. Like a CONNECT to that name and the port that was connected to.
//
// A made-up address that a client gives to one of the proxies is taken for its
// name too.
//
// # Parsing
//
// The request head is read by a strict reader of our own instead of net/http.
// net/http is lenient where a gate must not be (it takes CONNECT without a port,
// an opaque URI, user information, the Host header for the target) and repairs
// in silence what a second parser may read differently; and it wraps
// connections, which costs the kernel's splice. What the reader accepts is a
// subset of what net/http accepts, with the same meaning: a fuzz test holds it
// to that. Responses come from the other side of the wall and are read with
// [net/http.ReadResponse], then written anew.
//
// Three repairs are kept because clients rely on them: obs-fold is unfolded
// (never in a field that decides anything), a head that ends its lines in LF
// leaves with CRLF, and of Content-Length with Transfer-Encoding the latter
// counts and the former is dropped.
//
// # Answers
//
// A refusal by policy is 403 with Postern-Decision, Postern-Reason and a body
// for a person or an agent, or SOCKS reply 0x02. Malformed is 400 (414, 431 for
// size) or a closed SOCKS connection, and reaches neither resolver nor dialler.
// An upstream that cannot be reached is 502 or 504, or SOCKS 0x03 to 0x06. Without
// a proxy a refusal is the same 403 on port 80, a TLS alert on 443, and a broken
// connection elsewhere.
//
// # Tunnels
//
// What a tunnel carries is judged by its bytes, unless the rule that allowed it
// says `tcp`. A tunnel to port 443 must carry TLS whose server name is the host
// that was judged. A tunnel to port 80 of a name carries plain requests, each for
// that host and forwarded like any other, or such TLS. In a tunnel to another port
// of a name only TLS is held to anything, and a server that speaks first is not
// kept waiting. See hello.go for the verdicts and what they leave open. The bytes
// of TLS and of other protocols are forwarded as they came.
//
// # What is forwarded
//
// Plain HTTP is forwarded byte for byte where bytes have meaning: path, query,
// header names and values, content. Nothing is decoded, decompressed, followed
// or added (no Via, no User-Agent, no Accept-Encoding). Removed are the
// hop-by-hop fields, those that Connection names, Proxy-*, and fields with which
// a client could steer a second proxy. ws:// upgrades are relayed, any other
// upgrade is dropped and the request goes on as plain HTTP.
//
// An upstream connection is kept for the next request of the same client
// connection and is never shared with another one, so that one client's confused
// response can never become another's.
//
// # Parents
//
// Where a network lets out nothing but another proxy, [Parent] takes what the
// policy allows through that one. Names are looked up and addresses vetted as
// without it, unless the parent is to look names up.
//
// # Time
//
// One timer a connection enforces every limit of [Limits]; nothing waits
// forever.
package proxy
