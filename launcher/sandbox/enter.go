package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Numbers of the descriptors that enter has beside the standard ones.
const (
	fdOrders  = 3 // what to run
	fdAnswers = 4 // how far it is; closed by the command's start
)

// sealName is what enter tries to make, to know whether it is in a sandbox at all.
const sealName = "written"

// enter is the first program in a Seatbelt sandbox: ours. It proves that the profile is
// in force, says so, waits for what to run, and becomes that. Where it cannot it says why,
// as the inside of a bubblewrap sandbox does. denied tells a refusal by the profile from
// other errors: what else keeps a file from being written proves nothing.
//
// The run's secrets thus never stand in an argument list, the profile can be deleted
// before anything of the run's own is executed, and a command that cannot be run is told
// from a sandbox that cannot be had.
func enter(private string, denied func(error) bool, orders io.Reader, answers io.Writer) int {
	fail := func(m *message) int {
		m.Type = msgFailed
		if data, err := encode(m, maxInside); err == nil {
			_, _ = answers.Write(data)
		}
		return ExitRefused
	}
	seal := filepath.Join(private, ownSeal, sealName)
	f, err := os.OpenFile(seal, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the launcher names its own directory
	if err == nil {
		_ = f.Close()
		return fail(&message{Reason: ReasonSeatbelt, Detail: "the profile is not in force: what it forbids can be written"})
	}
	if !denied(err) {
		return fail(&message{Reason: ReasonSeatbelt, Detail: "it cannot be told whether the profile is in force: " + err.Error()})
	}
	ready, err := encode(&message{Type: msgReady}, maxInside)
	if err != nil {
		return ExitRefused
	}
	if _, err := answers.Write(ready); err != nil {
		return ExitRefused // nobody is there any more
	}
	m, err := decode(orders, maxStart)
	if err != nil {
		return ExitRefused
	}
	argv, aerr := unpack(m.Argv)
	env, eerr := unpack(m.Env)
	if err := errors.Join(aerr, eerr); err != nil || m.Type != msgStart || len(argv) == 0 {
		return fail(&message{Reason: ReasonProtocol, Detail: fmt.Sprintf("the launcher sent %q: %v", m.Type, err)})
	}
	err = become(argv, env, string(m.Dir))
	code := 126
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		code = 127
	}
	return fail(&message{Code: code, Detail: err.Error()})
}

// byProfile reports whether a call failed as Seatbelt makes it fail.
func byProfile(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)
}

// become runs a command in place of this process. It returns only when it cannot.
func become(argv, env []string, dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	hideDescriptors()
	exe, err := lookPath(argv[0], env)
	if err != nil {
		return err
	}
	err = syscall.Exec(exe, argv, env)
	if errors.Is(err, syscall.ENOEXEC) {
		err = syscall.Exec("/bin/sh", append([]string{"sh", exe}, argv[1:]...), env)
	}
	return &os.PathError{Op: "exec", Path: exe, Err: err}
}

// hideDescriptors lets the command inherit its standard descriptors and no other: what
// the launcher's caller left open is none of its business.
func hideDescriptors() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		for fd := 3; fd < 1024; fd++ {
			syscall.CloseOnExec(fd)
		}
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// grace is how long a command whose launcher was killed has between TERM and KILL.
const grace = 2 * time.Second

// keepWatch ends a command whose launcher is gone: there is no namespace here that the
// kernel would end. It reads from the launcher, who says a byte when all went well; the
// end of the connection without one is the launcher's death, however it came about.
func keepWatch(launcher io.Reader, group int) int {
	var b [1]byte
	if n, _ := launcher.Read(b[:]); n == 1 {
		return 0
	}
	_ = syscall.Kill(-group, syscall.SIGTERM)
	_ = syscall.Kill(-group, syscall.SIGCONT) // a stopped one would not hear the other
	for end := time.Now().Add(grace); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
			return 0
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
	return 0
}
