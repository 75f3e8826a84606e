//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// marker is set in the environment of a program that runs inside.
const marker = "POSTERN_NETLAB"

// ErrUnavailable says that this kernel or container refuses the namespaces.
var ErrUnavailable = errors.New("user and network namespaces are not available")

// Inside reports whether this program was started by Enter or Run.
func Inside() bool { return os.Getenv(marker) != "" }

// Enter puts the program into a lab. Outside, it runs the same program with
// the same arguments inside and exits with its status; it returns only when
// that cannot be done (ErrUnavailable). Inside, it returns the lab.
func Enter() (*Lab, error) {
	if Inside() {
		return setUp()
	}
	code, err := Rerun(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	os.Exit(code)
	return nil, nil //nolint:nilnil // not reached
}

// T is what Run needs of *testing.T.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Run runs the rest of a test inside a lab: outside, it starts the test binary
// again for this one test and fails when that fails; inside, it calls f. Tests
// call it first, and put everything into f.
func Run(t T, f func(*Lab)) {
	t.Helper()
	if Inside() {
		lab, err := setUp()
		if err != nil {
			t.Fatalf("set up the lab: %v", err)
		}
		f(lab)
		return
	}
	out := &tail{max: 64 << 10}
	code, err := Rerun([]string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.count=1"}, nil, out, out)
	if err != nil {
		t.Fatalf("enter the lab: %v", err)
	}
	if code != 0 {
		t.Fatalf("inside the lab (exit status %d):\n%s", code, out.buf)
	}
	t.Logf("inside the lab:\n%s", out.buf)
}

// Rerun runs this program inside, with these arguments, and gives its exit
// status: Enter for a program that has something to do before and after. What
// it sets in the environment is there inside. A nil stream is the null device.
func Rerun(args []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	// The kernel sends Pdeathsig when the thread that forked ends, so that
	// thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := startInside(args, stdin, stdout, stderr)
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()
	err = cmd.Wait()
	signal.Stop(signals)
	close(done)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if exit.ExitCode() < 0 {
			return 128 + int(exit.Sys().(syscall.WaitStatus).Signal()), nil //nolint:forcetypeassert // always so on Linux
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// startInside tries with a user namespace, which anybody may make, and then,
// for root in a container that forbids those, without.
func startInside(args []string, stdin io.Reader, stdout, stderr io.Writer) (*exec.Cmd, error) {
	flags := []uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWPID}
	if os.Geteuid() == 0 {
		flags = append(flags, unix.CLONE_NEWNET|unix.CLONE_NEWPID)
	}
	var first error
	for _, f := range flags {
		cmd := exec.Command("/proc/self/exe", args...)
		cmd.Args[0] = os.Args[0]
		cmd.Env = append(os.Environ(), marker+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: f, Pdeathsig: syscall.SIGKILL}
		if f&unix.CLONE_NEWUSER != 0 {
			// Root inside: the exec would drop the capabilities of another uid,
			// and ports below 1024 are the interesting ones.
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		}
		err := cmd.Start()
		if err == nil {
			return cmd, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, fmt.Errorf("%w: %w%s", ErrUnavailable, first, hint())
}

// hint names the setting that most often stands in the way.
func hint() string {
	for _, h := range []struct{ file, value, text string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone is 0"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "kernel.apparmor_restrict_unprivileged_userns is 1"},
		{"/proc/sys/user/max_user_namespaces", "0\n", "user.max_user_namespaces is 0"},
	} {
		if raw, err := os.ReadFile(h.file); err == nil && string(raw) == h.value {
			return " (" + h.text + ")"
		}
	}
	return ""
}

// tail keeps the last bytes written.
type tail struct {
	max int
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > t.max {
		t.buf = t.buf[len(t.buf)-t.max:]
	}
	return len(p), nil
}
