package peer

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const available = true

// patience bounds a look-up. The kernel answers before sendto returns.
const patience = time.Second

// nobody is what the kernel says for a user that has no number in this user
// namespace (/proc/sys/kernel/overflowuid).
const nobody = 65534

// hidesUsers says that this process is in a user namespace where not everybody
// has a number, so that nobody may be anybody.
var hidesUsers = sync.OnceValue(func() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return err != nil || len(fields) != 3 || fields[0] != "0" || fields[1] != "0" || fields[2] != "4294967295"
})

// uidOf asks the kernel. A socket of its own for each question costs two system
// calls more than keeping one, and has no state that could go wrong.
func uidOf(p pair) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, fmt.Errorf("open sock_diag: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	wait := unix.NsecToTimeval(int64(patience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return 0, fmt.Errorf("bound sock_diag: %w", err)
	}
	const seq = 1
	if err := unix.Sendto(fd, question(p, seq), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask sock_diag: %w", err)
	}
	b := make([]byte, 1024)
	n, from, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return 0, fmt.Errorf("read sock_diag: %w", err)
	}
	// Any process may send to a netlink socket whose number it guesses.
	if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
		return 0, fmt.Errorf("an answer that is not the kernel's: %w", ErrUnknown)
	}
	uid, err := answer(b[:n], p, seq)
	switch {
	case err != nil:
		return 0, err
	case uid == nobody && hidesUsers():
		return 0, fmt.Errorf("it has no number in this user namespace: %w", ErrUnknown)
	}
	return int(uid), nil
}
