package tty

import "golang.org/x/sys/unix"

const (
	getModes = unix.TIOCGETA
	setModes = unix.TIOCSETA

	// dropAndSet drops what was typed and not read, too.
	dropAndSet = unix.TIOCSETAF
)

// crashing are the signals of which Go ends at once, without running anything that was
// deferred, and that can be caught.
var crashing = []unix.Signal{unix.SIGTRAP, unix.SIGABRT, unix.SIGEMT, unix.SIGSYS}
