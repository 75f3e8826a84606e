package lease

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// Peer is who holds the other end of a Unix connection, as the kernel says. On
// Linux it is whoever called connect, at that moment, translated into this
// process's user namespace.
type Peer struct {
	UID int
	PID int // 0 where the kernel does not say
}

// PeerOf asks the kernel who is at the other end of c.
func PeerOf(c *net.UnixConn) (Peer, error) {
	var p Peer
	err := control(c, func(fd int) (err error) {
		p, err = peerOf(fd)
		return err
	})
	if err != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", err)
	}
	return p, nil
}

// CheckPeer returns a not_permitted error unless p is this process's own user.
// Root is no exception: a root process lending to a user's appliance would let
// that user speak for it, and a user lending to root's the reverse.
func CheckPeer(p Peer) error {
	if own := os.Geteuid(); p.UID != own {
		return &RefusedError{CodeNotPermitted, fmt.Sprintf("the peer is user %d, this process is user %d; both must be the same", p.UID, own)}
	}
	return nil
}

// control runs f on the descriptor of c without changing the mode it is in.
func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}
