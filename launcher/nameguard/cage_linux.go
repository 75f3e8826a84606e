package nameguard

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Canary is the entry that the inside tries to make to know whether the guard is in force.
// It must not exist, and never comes to.
type Canary struct {
	Dir  string // a guarded folder that may be written
	Name string
}

// Cage is what the inside does to itself before it runs the command.
type Cage struct {
	Free       []string // see Options
	Canary     Canary
	TrapRemove bool // deleting is the broker's, too
}

// Caged is a thread that was put into a cage, with the descriptors that a Broker needs.
// Whoever has them is the one who decides, so the command must not.
type Caged struct {
	Listener, Root int
	canary         string
}

var archTokens = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Close puts the calling thread into the cage for ever. What it starts is in there too;
// other threads of the process are not. So the goroutine must be locked to its thread, and
// end with it.
//
// The first canary is tried on the way: there are systems that say yes to Landlock and do
// nothing.
func (c *Cage) Close() (_ *Caged, err error) {
	if err := Probe(); err != nil {
		return nil, err
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's root: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(root)
		}
	}()
	if err := restrict(c.Free, c.TrapRemove); err != nil {
		return nil, err
	}
	caged := &Caged{Root: root, canary: c.Canary.Dir + "/" + c.Canary.Name}
	if err := caged.try("Landlock"); err != nil {
		return nil, err
	}
	prog := filterProgram(archTokens[runtime.GOARCH], native, c.TrapRemove)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}                                                         //nolint:gosec // some two hundred
	fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, filterFlags, uintptr(unsafe.Pointer(&fprog))) //nolint:gosec // what the system call takes
	if e != 0 {
		return nil, &MissingError{Part: waitKillable, Err: e}
	}
	caged.Listener = int(fd)
	return caged, nil
}

// Prove tries the second canary, which the broker has to refuse. It returns when that has
// answered.
func (c *Caged) Prove() error { return c.try("the broker") }

// try makes the canary, and wants to be refused.
func (c *Caged) try(by string) error {
	fd, err := unix.Open(c.canary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_ = unix.Close(fd)
		_ = unix.Unlink(c.canary)
		return fmt.Errorf("%s is not in force: %s could be made", by, c.canary)
	}
	if !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("it cannot be told whether %s is in force: %w", by, &os.PathError{Op: "make", Path: c.canary, Err: err})
	}
	return nil
}

// Drop closes the descriptors, when they were given away.
func (c *Caged) Drop() {
	_ = unix.Close(c.Listener)
	_ = unix.Close(c.Root)
}
