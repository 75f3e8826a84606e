// Package lease is the wire format of lease.sock, both ends of it.
//
// A sandbox lends its listeners. The launcher makes an HTTP and a SOCKS
// listener where the sandbox lives (inside its network namespace, or on
// loopback where there are none) and passes the two descriptors to the
// appliance over a Unix connection. No relay process sits between, no port can
// be raced for, and a killed appliance costs nothing but a pause: the launcher
// keeps a duplicate of each listener, so requests wait in the kernel's backlog
// until the same listeners are lent again.
//
// The conversation is one JSON value a line:
//
//	launcher   {"version":1,"spec":{"id":"run-1"},"pid":4711}   + 2 descriptors (SCM_RIGHTS)
//	appliance  {"ok":true,"session":{…},"readToken":"…","born":"…"}
//	appliance  {"time":"…","type":"denied","session":"run-1",…}   as often as it happens
//
// A hello may name further sockets, whose descriptors follow the two: the ports for
// DNS, and those for programs that know of no proxy. They may be bound to every
// address where the network is the sandbox's own, and to loopback elsewhere.
//
// The launcher says nothing after its hello. The connection is the lease: when
// it ends, for whatever reason, the session ends with it. Where the appliance is
// the one to end it, its last line is the session_close event, whose code says
// whether the listeners may be lent again.
//
// Both ends distrust the other as far as they can afford to. The peer's user is
// asked of the kernel, never of the peer; a hello is bounded in bytes and in
// time; exactly the descriptors that it names are taken, each proven to be such a
// socket, and every other one is closed.
//
// The package imports the standard library and golang.org/x/sys alone, because
// the launcher links it.
package lease
