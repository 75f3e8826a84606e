package lease

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Process names one process, and not the next one to get its id: "4711@81223",
// the id and when it started, in the kernel's own measure. The zero value names
// none. It is text so that it can be written down and asked about later, by
// another process of the same user.
type Process string

// ProcessOf names the process that has the id now. It is the zero value for an
// id that nobody has, or that the kernel did not tell. Where the start cannot be
// read, the name is the id alone, which a later process may come to have as well.
func ProcessOf(pid int) Process {
	if pid <= 0 {
		return ""
	}
	switch start, err := startOf(pid); {
	case errors.Is(err, errNoProcess):
		return ""
	case err != nil:
		return Process(strconv.Itoa(pid) + "@")
	default:
		return Process(fmt.Sprintf("%d@%d", pid, start))
	}
}

// Alive reports whether the process still runs. One that has ended and waits for
// its parent to notice does not.
func (p Process) Alive() bool {
	text, want, _ := strings.Cut(string(p), "@")
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return false
	}
	start, err := startOf(pid)
	switch {
	case errors.Is(err, errNoProcess):
		return false
	case err != nil || want == "":
		// The start tells nothing: the id alone has to. EPERM means that somebody
		// has it, if not this user.
		err := syscall.Kill(pid, 0)
		return err == nil || errors.Is(err, syscall.EPERM)
	}
	return strconv.FormatUint(start, 10) == want
}

// errNoProcess says that an id is nobody's, or that of a process that has ended.
var errNoProcess = errors.New("no such process")
