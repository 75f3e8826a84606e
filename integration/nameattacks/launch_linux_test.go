package nameattacks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"postern/launcher/nameguard"
)

// launch starts bubblewrap, serves its sandbox until that has ended, and reports.
func launch(text string) (int, error) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return 0, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	files := []*os.File{os.NewFile(uintptr(pair[1]), "theirs")}
	if !o.Guarded {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return 0, err
		}
		files[0] = null
	}
	for _, path := range o.Inherit {
		f, err := os.Open(path)
		if err != nil {
			return 0, err
		}
		files = append(files, f)
	}
	cmd := exec.Command("bwrap", o.Args...)
	cmd.ExtraFiles, cmd.Stdin, cmd.Stdout, cmd.Stderr = files, os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_ = unix.Close(pair[1])
	if !o.Guarded {
		return status(cmd.Wait())
	}
	r, err := serve(cmd, pair[0], &o)
	if err != nil {
		return 0, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(o.Report, data, 0o600); err != nil {
		return 0, err
	}
	return r.Code, nil
}

// status is the exit status of a command that was waited for.
func status(err error) (int, error) {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// serve takes the shim's descriptors and is the guard until the sandbox has ended.
func serve(cmd *exec.Cmd, ours int, o *order) (result, error) {
	var r result
	rules, err := nameguard.Compile(o.Rules)
	if err != nil {
		return r, err
	}
	oob := make([]byte, unix.CmsgSpace(8))
	_, size, _, _, err := unix.Recvmsg(ours, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || size == 0 {
		_ = cmd.Wait() // the shim has said why
		return r, fmt.Errorf("no descriptors from the shim: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:size])
	if err != nil {
		return r, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return r, err
	}
	var mu sync.Mutex
	fault := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		r.Faults = append(r.Faults, err.Error())
	}
	broker, err := nameguard.Serve(fds[0], fds[1], nameguard.Options{
		Rules: rules, Free: o.Cage.Free, Private: o.Private, Canary: o.Cage.Canary,
		Report: func(v nameguard.Violation) {
			mu.Lock()
			defer mu.Unlock()
			if len(r.Violations) < 8 {
				r.Violations = append(r.Violations, v.Action+" "+v.Target+" "+v.Rule)
			}
		},
		Fault: fault,
		Fatal: func(err error) { fault(err); _ = cmd.Process.Kill() },
	})
	if err != nil {
		_ = cmd.Wait()
		return r, err
	}
	code, err := status(cmd.Wait())
	broker.Close()
	mu.Lock()
	defer mu.Unlock()
	r.Code = code
	return r, err
}

// shim is the first program in the sandbox: it goes into the cage and becomes the next.
func shim(config string, argv []string) error {
	runtime.LockOSThread()
	var c nameguard.Cage
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	caged, err := c.Close()
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(caged.Listener, caged.Root), nil, 0); err != nil {
		return err
	}
	caged.Drop()
	_ = unix.Close(3)
	if err := caged.Prove(); err != nil {
		return err
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}
