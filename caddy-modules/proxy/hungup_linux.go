package proxy

import "golang.org/x/sys/unix"

// hungUp says that the peer has closed its side, behind whatever it sent before.
func hungUp(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // a descriptor
	n, err := retry(func() (int, error) { return unix.Poll(fds, 0) })
	return err == nil && n > 0
}
