package sandbox

import (
	"os"
	"syscall"
	"time"

	"postern/launcher/nameguard"
	"postern/launcher/tty"
)

// InitCommand is the first argument under which main must call Init.
const InitCommand = "__init"

// DefaultPorts are where the HTTP and the SOCKS listener are, inside.
var DefaultPorts = [2]int{3128, 1080}

// Options are about the start and not about what the run may do.
type Options struct {
	// Dirs are where bubblewrap is looked for; nil means the system's directories.
	Dirs []string

	// Release is the kernel's, as /proc/sys/kernel/osrelease has it; empty means the
	// running one.
	Release string

	// Exe is our own binary on the host; empty means the running one. It must call
	// Init when its first argument is InitCommand.
	Exe string

	// Ports are the listeners' inside, HTTP first; the zero value means DefaultPorts.
	Ports [2]int

	// Stdin, Stdout and Stderr are the command's; nil means this process's own. Files
	// are relayed through pipes, folders and disks refused, the rest handed on as it is.
	Stdin, Stdout, Stderr *os.File

	// Observe, if not nil, is called with each piece of what the command writes to its
	// stderr (and stdout, where both are one), after the piece was written on. It must
	// not keep the piece. A pipe or socket is then relayed as well, so that there is
	// something to look at; a terminal is handed on and never looked at, unless the command
	// has one of its own: then it is called with all that is printed there.
	Observe func([]byte)

	// Program is what Exec will be asked to run. On macOS, where nothing in a writable
	// folder may be executed, it may.
	Program string

	// Env is the environment in whose PATH Program is looked up.
	Env []string

	// Reach are further ports of the host's loopback that the command may connect to, and
	// Serve those at which it may listen, where it shares that loopback.
	Reach, Serve []uint16

	// Tag ends what the system's log says of this run, on macOS.
	Tag string

	// Violated hears of each call of the command that was refused for a name.
	Violated Violated

	// Low are sockets that the sandbox has beside the listeners, see Process.Low.
	Low []LowPort

	// Any makes every address of the two ranges that fake addresses are taken of one of
	// the sandbox's own: what listens at an unspecified address of Low is there as well.
	Any bool

	// Terminal, if not nil, has the command run at a pseudo-terminal of its own, which is
	// joined to Stdin and Stdout, and to Stderr where that is a terminal: it is the
	// terminal, if any, that those are.
	Terminal *tty.Caller

	// Stopped is called when the command at that pseudo-terminal was stopped, by Ctrl-Z
	// or by itself, and the caller's terminal is its own again. It returns when the
	// command was continued, by Signal; still says whether that has yet to happen.
	Stopped func(still func() bool)

	// Timeout bounds the start, until the sandbox stands; zero means 10 s.
	Timeout time.Duration

	lowDenied error // what binding a low port fails with, for tests: a security module's word
	noIPv6    bool  // the system has none, for tests
}

// Violated are called, if they are not nil, for calls that a rule about names refused:
// Notice before the call has failed, at any time and from any thread, and it must not
// block; Report later, by one goroutine at a time, and not for those that found no room.
//
// Fault hears, at most twice, of a fault of ours: one call failed by it, or the run ends.
type Violated struct {
	Notice, Report func(nameguard.Violation)
	Fault          func(error)
}

// Command is what runs in a sandbox. The environment is the whole one, secrets
// included: it travels through an inherited socket only.
type Command struct {
	Argv []string
	Env  []string
	Dir  string // inside; empty means the profile's
}

// ExecError says that the sandbox stands and the command could not be run in it.
type ExecError struct {
	Code   int    // what a shell would exit with: 126 or 127
	Detail string // the system's words
}

// Error implements error.
func (e *ExecError) Error() string { return e.Detail }

// OutputError says that the command ran, and that not all it wrote could be written
// to where its output was to go.
type OutputError struct{ Err error }

// Error implements error.
func (e *OutputError) Error() string { return "write the command's output: " + e.Err.Error() }

// Unwrap gives the system's error.
func (e *OutputError) Unwrap() error { return e.Err }

// Status is how a command ended.
type Status struct {
	Code   int            // exit status, when Signal is 0
	Signal syscall.Signal // what killed it
}

// ExitCode is the status a shell reports: 128 + n for a signal.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}
