package sandbox

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"postern/caddy-modules/session/lease"
)

// Pair is the listeners of the sandbox. They live in its network namespace, and as
// long as the process keeps them.
func (p *Process) Pair() lease.Pair { return p.pair }

// Facts are what the sandbox was made of.
func (p *Process) Facts() *Facts { return p.facts }

// SetGitConfig writes the git configuration the run sees, before Exec.
func (p *Process) SetGitConfig(text string) error {
	if p.git == nil {
		return errors.New("write git configuration: the sandbox has none")
	}
	if _, err := p.git.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("write git configuration: %w", err)
	}
	return p.git.Truncate(int64(len(text)))
}

// Exec runs the command, once. The error is a *ExecError when the command is to
// blame, a *Refusal when the view is not the planned one.
func (p *Process) Exec(c Command) error {
	if c.Dir == "" {
		c.Dir = p.facts.Dir
	}
	argv, err := pack(c.Argv)
	if err != nil {
		return fmt.Errorf("run command: %w", err)
	}
	env, err := pack(c.Env)
	if err != nil {
		return fmt.Errorf("run command: %w", err)
	}
	start := &message{Type: msgStart, Argv: argv, Env: env, Dir: []byte(c.Dir), Verify: expectations(p.facts, p.plan), TTY: p.term.asked(), Guard: p.facts.guard.asked()}
	if err := p.send(start, maxStart); err != nil {
		return &Refusal{Reason: ReasonStart, Detail: "cannot hand over the command", Err: err}
	}
	m, ok := <-p.messages
	if start.Guard != nil && ok && m.Type == msgGuard {
		if err := p.guardNames(); err != nil {
			return err
		}
		start.Guard = nil
		m, ok = <-p.messages
	}
	switch {
	case !ok:
		<-p.ended
		return &Refusal{Reason: ReasonStart, Detail: "the sandbox ended before the command ran: " + lastLine(p.stderr.String())}
	case m.Type == msgFailed && m.Reason == ReasonNameGlobs && p.facts.guard != nil:
		return p.facts.guard.refused(m.Detail, nil)
	case m.Type == msgStarted && start.Guard != nil:
		return &Refusal{Reason: ReasonProtocol, Detail: "the inside of the sandbox started the command without guarding names"}
	case m.Type == msgStarted:
		return p.term.start(func() { _ = p.Signal(syscall.SIGHUP, true) })
	case m.Type == msgFailed && m.Reason != "":
		return &Refusal{Reason: m.Reason, Detail: m.Detail}
	case m.Type == msgFailed:
		return &ExecError{Code: m.Code, Detail: m.Detail}
	}
	return &Refusal{Reason: ReasonProtocol, Detail: fmt.Sprintf("the inside of the sandbox said %q", m.Type)}
}

// expectations is what the inside checks: every planned mount of the run's own is
// there, leads to the file it was planned for, and gives the rights it should.
func expectations(f *Facts, plan []Mount) []expect {
	ids := map[string]FileID{}
	hidden := map[string]bool{}
	for _, r := range f.Roots {
		ids[r.Path] = r.ID
	}
	for _, d := range f.Denials {
		ids[d.Path], hidden[d.Path] = d.ID, d.Kind == Hide
	}
	var out []expect
	for _, m := range plan {
		id, known := ids[m.Target]
		if m.role != roleRoot && m.role != roleGuard || !known || m.Op == OpRemountRO {
			continue
		}
		out = append(out, expect{
			Path: []byte(m.Target), Dev: id.Dev, Ino: id.Ino,
			ReadOnly: m.Op != OpBind, Hidden: m.role == roleGuard && hidden[m.Target],
		})
	}
	return out
}

// Signal sends a signal to the command, or to its whole process group, as a terminal
// does. At a pseudo-terminal, SIGWINCH gives it the size of the caller's instead, and
// SIGCONT takes the caller's terminal again, after Pause.
func (p *Process) Signal(sig syscall.Signal, group bool) error {
	m := &message{Type: msgSignal, Signal: int(sig), Group: group}
	switch {
	case p.term == nil:
	case sig == syscall.SIGWINCH:
		p.term.resize()
		return nil
	case sig == syscall.SIGCONT:
		m.ID = p.term.resume()
	}
	return p.send(m, maxInside)
}

// Pause gives the caller's terminal its own modes back, until the command is continued.
func (p *Process) Pause() {
	if p.term != nil {
		p.term.pause(p.term.turn.Load())
	}
}

// Wait waits for the command to end and for everything of the sandbox to be gone.
func (p *Process) Wait() (Status, error) {
	var status Status
	told := false
	for m := range p.messages {
		if m.Type == msgExit && !told {
			status, told = Status{Code: m.Code & 0xff, Signal: syscall.Signal(m.Signal & 0x7f)}, true
		}
		if m.Type == msgStopped {
			p.term.stop(m.ID)
		}
	}
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		// It said goodbye and stays: not for long.
		p.Kill()
		<-p.ended
	}
	if !told {
		// PID 1 was killed, from outside or by the kernel for want of memory.
		status = Status{Code: p.code}
		if p.code == 0 {
			_ = p.close()
			return status, errors.New("wait for command: the sandbox ended without saying how the command did")
		}
	}
	return status, p.close()
}

// Kill ends the sandbox at once and with everything in it: by the control connection,
// and by force where that does not help.
func (p *Process) Kill() {
	if p.child == nil {
		return
	}
	// Not for reading: how the command ended may be on its way.
	_ = p.conn.CloseWrite()
	time.AfterFunc(time.Second, p.child.kill)
}

// Close ends a sandbox, whatever state it is in, and frees what it holds.
func (p *Process) Close() {
	p.Kill()
	for range p.messages {
	}
	<-p.ended
	_ = p.close() // nobody waits for the rest of the output
}

func (p *Process) close() error {
	_ = p.conn.Close()
	_ = p.pair.Close()
	p.closeLow()
	if p.git != nil {
		_ = p.git.Close()
	}
	p.stderr.close()
	if p.broker != nil {
		p.broker.Close()
	}
	closeAll(p.cage)
	err := errors.Join(p.term.finish(), p.stdio.wait())
	p.placed.remove()
	return err
}

func (p *Process) send(m *message, limit int) error {
	data, err := encode(m, limit)
	if err != nil {
		return err
	}
	p.write.Lock()
	defer p.write.Unlock()
	_, err = p.conn.Write(data)
	return err
}
