package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// handedOver reports why fd is none that the caller has handed over. One that is open
// need not be: this program's own, as those that the runtime waits with, have low
// numbers too. They close on exec; what has come through one does not.
func handedOver(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return errors.New("no such descriptor was handed over")
	}
	return nil
}
