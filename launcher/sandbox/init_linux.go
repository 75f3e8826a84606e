package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Descriptors that Init inherits beside the standard ones. The real stderr is not
// number 2, so that what bubblewrap says about itself can be told from what the
// command says.
const (
	fdControl = 3
	fdStderr  = 4
	fdFirst   = 5 // the first that must not reach the command
)

// Exit statuses of commands that could not be started, as shells use them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// Init is PID 1 of a sandbox. args are the ports to listen on, if any, and the kinds of
// bare sockets to hand out. It returns
// the status to exit with, which nobody but bubblewrap looks at: how the command
// ended is told to the launcher.
func Init(args []string) int {
	if len(args) > 0 && args[0] == maskStage {
		return becomeBwrap(args[1:])
	}
	// A process that cannot be traced gives away neither its descriptors nor its
	// memory to the command, which has the same user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return initFailed(err)
	}
	// Bubblewrap outlives us in the order of things; where it does not, we go with it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return initFailed(err)
	}
	if err := closeOnExec(fdFirst); err != nil {
		return initFailed(err)
	}
	unix.CloseOnExec(fdControl)
	unix.CloseOnExec(fdStderr)

	if err := shield(); err != nil {
		return initFailed(err)
	}
	in := &initial{control: os.NewFile(fdControl, "control")}
	if err := in.announce(args); err != nil {
		return initFailed(err)
	}
	warm() // the appliance is asked meanwhile
	if err := in.run(); err != nil {
		return initFailed(err)
	}
	return 0
}

// initFailed prints to the stderr that the launcher reads with bubblewrap's.
func initFailed(err error) int {
	fmt.Fprintf(os.Stderr, "postern: inside: %v\n", err)
	return ExitRefused
}

// initial is the state of PID 1.
type initial struct {
	// control is in blocking mode: PID 1 has nothing else to do, and needs no poller.
	control *os.File

	write sync.Mutex // one message at a time

	mu  sync.Mutex // guards pid against being signalled after it was reaped
	pid int        // the command; 0 before and after

	tty  *pseudo // the command's pseudo-terminal; nil: it has none
	turn uint64  // of the command, as the launcher counts them; guarded by mu
}

func (in *initial) send(m *message, fds ...int) error {
	data, err := encode(m, maxInside)
	if err != nil {
		return err
	}
	return in.transmit(data, fds...)
}

func (in *initial) transmit(data []byte, fds ...int) (err error) {
	in.write.Lock()
	defer in.write.Unlock()
	if len(fds) > 0 {
		// Blocking, and small: it is taken as a whole.
		return unix.Sendmsg(fdControl, data, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	}
	_, err = in.control.Write(data)
	return err
}

// announce makes the listeners, hands them out and says that the sandbox stands.
func (in *initial) announce(args []string) error {
	ports, words := splitSockets(args)
	if len(ports) > 0 {
		fds, err := listenAll(ports)
		if err != nil {
			return err
		}
		fds = append(fds, bareAll(words)...)
		err = in.transmit(plain(msgListeners, msgReady), fds...)
		for _, fd := range fds {
			// Nobody accepts inside, and the command must not be able to.
			_ = unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("hand out listeners: %w", err)
		}
		return nil
	}
	return in.transmit(plain(msgReady))
}

// backlog is how many connections wait while the appliance is away.
const backlog = 4096

// listenAll makes listeners on loopback. Raw, because Go's own are multipath TCP
// where the kernel has it, which costs every connection something here.
func listenAll(ports []string) (fds []int, err error) {
	for _, text := range ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("listen on port %q: %w", text, err)
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, fmt.Errorf("listen on port %s: %w", text, err)
		}
		fds = append(fds, fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return nil, fmt.Errorf("listen on port %s: %w", text, err)
		}
		if err := unix.Listen(fd, backlog); err != nil {
			return nil, fmt.Errorf("listen on port %s: %w", text, err)
		}
	}
	return fds, nil
}

// run waits for the start message, runs the command, and reports.
func (in *initial) run() error {
	m, err := in.next(maxStart)
	if errors.Is(err, io.EOF) {
		return nil // the launcher changed its mind
	}
	if err != nil {
		return err
	}
	if m.Type != msgStart {
		return fmt.Errorf("read message: %q before start", m.Type)
	}
	if failed := in.start(m); failed != nil {
		return in.send(failed)
	}
	if err := in.started(); err != nil {
		return err
	}
	go in.obey()
	return in.reap()
}

// start checks the view and starts the command. A message is returned instead of an
// error: the launcher has to know.
func (in *initial) start(m *message) *message {
	for _, e := range m.Verify {
		if err := e.check(); err != nil {
			return &message{Type: msgFailed, Code: ExitRefused, Reason: ReasonChanged, Detail: err.Error()}
		}
	}
	argv, err := unpack(m.Argv)
	if err == nil && len(argv) == 0 {
		err = errors.New("no command")
	}
	env, envErr := unpack(m.Env)
	if err = errors.Join(err, envErr); err != nil {
		return &message{Type: msgFailed, Code: ExitRefused, Reason: ReasonProtocol, Detail: err.Error()}
	}
	if err := os.Chdir(string(m.Dir)); err != nil {
		return &message{Type: msgFailed, Code: ExitRefused, Reason: ReasonDir, Detail: err.Error()}
	}
	if m.TTY != nil {
		if in.tty, err = openPseudo(m.TTY); err != nil {
			return &message{Type: msgFailed, Code: ExitRefused, Reason: ReasonTerminal, Detail: err.Error()}
		}
	}
	run := func() (int, error) { return spawn(argv, env, in.tty.standard(m.TTY), in.tty.process()) }
	var pid int
	if m.Guard == nil {
		pid, err = run()
	} else {
		var failed *message
		if pid, failed, err = in.caged(m.Guard, run); failed != nil {
			return failed
		}
	}
	if err != nil {
		code := exitNotExecutable
		if errors.Is(err, unix.ENOENT) {
			code = exitNotFound
		}
		return &message{Type: msgFailed, Code: code, Detail: err.Error()}
	}
	in.pid = pid // nobody else looks yet
	return nil
}

// check looks at one path from inside.
func (e *expect) check() error {
	path := string(e.Path)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if !e.Hidden && (st.Dev != e.Dev || st.Ino != e.Ino) {
		return fmt.Errorf("%s is not what it was when the mounts were planned", path)
	}
	if e.Hidden && st.Dev == e.Dev && st.Ino == e.Ino {
		return fmt.Errorf("%s should be hidden, and is not", path)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if e.ReadOnly && fs.Flags&unix.ST_RDONLY == 0 {
		return fmt.Errorf("%s should be read-only, and is not", path)
	}
	return nil
}

// spawn starts the command in a process group of its own, with the caller's standard
// descriptors. A script without an interpreter line goes to the shell, as execvp
// does it.
func spawn(argv, env []string, standard []uintptr, process *syscall.SysProcAttr) (int, error) {
	exe, err := lookPath(argv[0], env)
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{
		Env:   env,
		Files: standard,
		Sys:   process,
	}
	pid, err := syscall.ForkExec(exe, argv, attr)
	if errors.Is(err, unix.ENOEXEC) {
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", exe}, argv[1:]...), attr)
	}
	if err != nil {
		return 0, &os.PathError{Op: "exec", Path: exe, Err: err}
	}
	return pid, nil
}

// closeOnExec marks every descriptor from first on. Not closed: some belong to the
// runtime already.
func closeOnExec(first uint) error {
	err := unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Before Linux 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= int(first) {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
