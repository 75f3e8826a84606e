package lease

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// xucredVersion is XUCRED_VERSION of <sys/ucred.h>; another one means that the
// structure was not filled in.
const xucredVersion = 0

func peerOf(fd int) (Peer, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	if cred.Version != xucredVersion {
		return Peer{}, fmt.Errorf("credential structure has version %d", cred.Version)
	}
	// The pid serves people only, so it may be missing.
	pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		pid = 0
	}
	return Peer{UID: int(cred.Uid), PID: pid}, nil
}
