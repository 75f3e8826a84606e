package session

import (
	"net"

	"postern/caddy-modules/session/peer"
)

// admit is the question asked about each client connection, nil for none.
//
// The listeners of a lease are inside a sandbox, and a Unix socket lies in a
// directory that is closed to others: who reaches them is the session. A port of
// 127.0.0.1 is reached by every user of the host, and serves the session's owner
// alone, in whose name it browses and pushes.
func (s *session) admit(ln net.Listener) func(net.Conn) error {
	if _, tcp := ln.Addr().(*net.TCPAddr); !tcp || s.kind != kindAPI || !peer.Available {
		return nil
	}
	return peer.OnlyOwner(s.owner)
}
