package sandbox

import (
	"errors"
	"fmt"

	"postern/launcher/nameguard"
)

// canaryName is what the inside tries to make, to know whether names are guarded. Whatever
// the rules are, it is never made.
const canaryName = ".postern-canary"

// guardNames takes over the descriptors that the inside gave away, and serves what the
// command will ask for until it has ended.
func (p *Process) guardNames() error {
	fds := p.cage
	p.cage = nil
	if len(fds) != 2 {
		closeAll(fds)
		return &Refusal{Reason: ReasonProtocol, Detail: fmt.Sprintf("the inside gave %d descriptors to guard names by, want 2", len(fds))}
	}
	g := p.facts.guard
	broker, err := nameguard.Serve(fds[0], fds[1], nameguard.Options{
		Rules: g.rules, Free: g.free, Private: g.private,
		Canary: nameguard.Canary{Dir: g.canary, Name: canaryName},
		Notice: p.violated.Notice, Report: p.violated.Report,
		Fault: p.violated.Fault,
		Fatal: func(err error) {
			if p.violated.Fault != nil {
				p.violated.Fault(err)
			}
			p.Kill()
		},
	})
	if err != nil {
		return g.refused(err.Error(), err)
	}
	p.broker = broker
	return nil
}

// canGuard reports whether names can be guarded in these folders, and why not where it is the
// folders' affair.
func canGuard(mountinfo string, folders []string) (bool, error) {
	if nameguard.Probe() != nil {
		return false, nil //nolint:nilerr // doctor and probe say it
	}
	err := nameguard.CheckMounts(mountinfo, folders)
	return err == nil, err
}

// refused says that names cannot be guarded here.
func (g *nameGuard) refused(detail string, err error) *Refusal {
	without := "drop these patterns"
	if g.texts == "" {
		without = "say --guard-names off"
	}
	r := &Refusal{
		Reason: ReasonNameGlobs,
		Detail: g.needs() + ", " + hadNot + detail,
		Cure:   "use Linux 5.19 or later with Landlock and seccomp, or " + without,
	}
	if fs, ok := errors.AsType[*nameguard.FileSystemError](err); ok {
		r.Cure = "work in a folder of another file system than " + fs.Type + ", or " + without
	}
	if w, ok := errors.AsType[*nameguard.WithheldError](err); ok {
		r.Cure = "most likely AppArmor, another security policy or a container's seccomp profile forbids it: look for it in the kernel's log (journalctl -k), allow it to postern, or " + without
		if w.Yama() {
			r.Cure = "set kernel.yama.ptrace_scope to 2 or less, if it is 3 (the next boot can); else " + r.Cure
		}
	}
	return r
}

// caged starts the command from a thread that was put into a cage before, which the command
// is then in as well. Other threads of PID 1 are not: they have to go on. The command
// cannot trace them, since PID 1 is not dumpable, and the thread ends here.
func (in *initial) caged(g *guardStart, start func() (int, error)) (pid int, failed *message, err error) {
	// Not on the main thread: were that in the cage, Landlock would let the command trace it.
	nameguard.OnOwnThread(func() {
		if failed = in.enterCage(g); failed == nil {
			pid, err = start()
		}
	})
	return pid, failed, err
}

func (in *initial) enterCage(g *guardStart) *message {
	c := nameguard.Cage{Canary: nameguard.Canary{Dir: string(g.Canary), Name: canaryName}, TrapRemove: g.TrapRemove}
	for _, dir := range g.Free {
		c.Free = append(c.Free, string(dir))
	}
	caged, err := c.Close()
	if err == nil {
		err = in.send(&message{Type: msgGuard}, caged.Listener, caged.Root)
		caged.Drop()
	}
	if err == nil {
		err = caged.Prove()
	}
	if err != nil {
		return &message{Type: msgFailed, Code: ExitRefused, Reason: ReasonNameGlobs, Detail: err.Error()}
	}
	return nil
}
