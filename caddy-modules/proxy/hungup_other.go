//go:build !linux

package proxy

import (
	"errors"

	"golang.org/x/sys/unix"
)

// hungUp says that the peer has closed its side. While bytes of it are unread it
// cannot be told here.
func hungUp(fd int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return false
	}
	return err != nil || n == 0
}
