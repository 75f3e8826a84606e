// Package peer finds out which user is at the other end of a connection over
// loopback TCP.
//
// A listener that is lent by a sandbox, or lies in a closed directory, is reached
// by its own run alone. A port of 127.0.0.1 is reached by every process of the
// host: whoever connects to it would browse and push as the session. Both ends of
// such a connection are on this host, so that the kernel knows the user of the far
// one, and Linux tells (sock_diag(7), exactly that one socket).
//
// On other systems nothing tells it without privileges. [Available] is false
// there, and a TCP listener needs a credential that its clients present.
package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Available says that the user of a connection can be found on this system.
const Available = available

// Errors of UID beside those of the system.
var (
	// ErrGone is for a far end that its process has closed already. Whose it
	// was is not known any more: the kernel gives such a socket to root.
	ErrGone = errors.New("the far end was closed before it could be asked about")
	// ErrUnknown is for a far end that the kernel does not find, or whose user
	// has no number in this user namespace.
	ErrUnknown = errors.New("the user of the far end is not known")
)

// OnlyOwner admits connections of one user, and of root, who may be anybody anyway.
// Whoever cannot be told is refused.
func OnlyOwner(owner int) func(net.Conn) error {
	return func(c net.Conn) error {
		uid, err := UID(c)
		if err != nil {
			return fmt.Errorf("find the user of a connection: %w", err)
		}
		if uid != owner && uid != 0 {
			return fmt.Errorf("the connection is of user %d, the session of user %d", uid, owner)
		}
		return nil
	}
}

// UID gives the user who made the far end of c, a TCP connection within this host.
// It is to be called when c was just accepted.
func UID(c net.Conn) (int, error) {
	far, okFar := c.RemoteAddr().(*net.TCPAddr)
	near, okNear := c.LocalAddr().(*net.TCPAddr)
	if !okFar || !okNear {
		return 0, fmt.Errorf("%T is no TCP connection: %w", c, ErrUnknown)
	}
	// The far end's own view: what is remote here is local there.
	return uidOf(pair{local: plain(far.AddrPort()), remote: plain(near.AddrPort())})
}

// pair is a connection as one of its ends sees it.
type pair struct{ local, remote netip.AddrPort }

// plain unmaps: an IPv4 connection of a dual-stack socket is found as IPv4.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
