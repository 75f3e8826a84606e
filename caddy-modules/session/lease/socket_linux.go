package lease

import "golang.org/x/sys/unix"

// isTCP reports whether fd is a TCP socket. Multipath TCP and SCTP are streams
// over IP as well, so the protocol is asked for, not guessed from the type.
func isTCP(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 {
		return false
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	// Go's own listeners are multipath TCP where the kernel has it.
	return err == nil && (protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_MPTCP)
}

// isListening reports whether listen has been called on fd.
func isListening(fd int) bool {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && v != 0
}

// onHost compares the network namespace of fd with the process's own. Kernels
// before 5.14 cannot say.
func onHost(fd int) bool {
	theirs, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return true
	}
	own, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(own)
	ours, err := unix.GetsockoptUint64(own, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return err != nil || ours == theirs
}

// isUDP reports whether fd is a UDP socket.
func isUDP(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 {
		return false
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return err == nil && protocol == unix.IPPROTO_UDP
}
