package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"postern/caddy-modules/session/lease"
	"postern/launcher/nameguard"
)

// Process is a sandbox that stands, and the command in it once Exec was called.
type Process struct {
	facts  *Facts
	plan   []Mount
	child  *child
	conn   *net.UnixConn
	pair   lease.Pair
	git    *os.File
	placed *placed
	stderr *tail
	stdio  *stdio
	term   *terminal // nil: the command is at the caller's own streams

	write    sync.Mutex // one message at a time
	messages chan *message
	sockets  sockets
	ended    chan struct{} // bubblewrap was reaped; code is set
	code     int

	cage     []int // what the inside gave away to guard names by
	broker   *nameguard.Broker
	violated Violated

	spare      spares // bare ones, for low
	low        []LowSocket
	lowRefused error // why there are none, where they were asked for
}

// Start puts up a sandbox for facts and returns when its listeners exist. The
// command comes later, by Exec, because its environment depends on who takes the
// listeners. The error is a *Refusal where the host or the request is to blame.
func Start(ctx context.Context, f *Facts, o Options) (*Process, error) {
	if err := checkElevated(); err != nil {
		return nil, err
	}
	bwrap, err := FindBwrap(o.Dirs)
	if err != nil {
		return nil, o.blame(err)
	}
	if f.guard != nil {
		if err := nameguard.Probe(); err != nil {
			return nil, f.guard.refused(err.Error(), err)
		}
	}
	if err := f.setExe(o.Exe); err != nil {
		return nil, err
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Ports == [2]int{} {
		o.Ports = DefaultPorts
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	p := &Process{facts: f, violated: o.Violated, messages: make(chan *message, 4), ended: make(chan struct{})}
	if p.git, err = f.makeGitFile(); err != nil {
		return nil, err
	}
	if p.placed, err = f.place(); err != nil {
		p.release()
		return nil, err
	}
	if err := p.launch(bwrap, o); err != nil {
		p.release()
		return nil, err
	}
	if err := p.await(ctx); err != nil {
		p.Kill()
		p.release()
		return nil, o.blame(err)
	}
	p.openLow(o)
	return p, nil
}

const gitFilePattern = ".gitconfig-*"

// launch starts bubblewrap.
//
// What ends everything when this process dies is the control connection: PID 1 of the
// sandbox exits when it breaks, the kernel ends the rest, and bubblewrap follows. A
// parent-death signal for bubblewrap (or its --die-with-parent, which is the same)
// would be worse: it may come while bubblewrap's child waits for its user mapping, who
// then waits for ever, in nobody's care. The other way round is safe, so PID 1 asks
// for bubblewrap's death to be its own.
func (p *Process) launch(bwrap string, o Options) error {
	theirs, err := p.socketpair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	given := o.standard()
	if p.term, err = newTerminal(o, &given); err != nil {
		return err
	}
	defer p.term.started()
	if p.stdio, err = relayed(given, o.Observe); err != nil {
		return err
	}
	p.plan = Plan(p.facts)
	cmd, fds, err := command(bwrap, p.facts, p.plan, p.facts.sockets(o), theirs, p.stdio.files[2])
	if err != nil {
		return err
	}
	// The first two belong to others, the rest is the child's alone.
	defer (&files{list: fds.list[2:]}).close()
	said, theirsErr, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	p.stderr = newTail(said)

	p.child, err = startChild(cmd, [3]*os.File{p.stdio.files[0], p.stdio.files[1], theirsErr})
	_ = theirsErr.Close()
	if err != nil {
		return &Refusal{Reason: ReasonStart, Detail: "cannot start " + bwrap, Err: err}
	}
	go func() {
		p.code = p.child.wait()
		// PID 1 is gone too, or about to be: what it still said is waiting.
		_ = p.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		close(p.ended)
	}()
	p.stdio.start()
	go p.listen()
	warm() // bubblewrap takes longer
	return nil
}

// standard are the descriptors that the command is to have.
func (o Options) standard() [3]*os.File {
	out := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	for i, f := range []*os.File{o.Stdin, o.Stdout, o.Stderr} {
		if f != nil {
			out[i] = f
		}
	}
	return out
}

// socketpair makes the control connection; the other end is returned.
func (p *Process) socketpair() (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make control connection: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control of the inside")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make control connection: %w", err), theirs.Close())
	}
	p.conn = c.(*net.UnixConn) //nolint:forcetypeassert // made so above
	return theirs, nil
}

// listen reads what the inside says, until it hangs up.
func (p *Process) listen() {
	defer close(p.messages)
	defer p.sockets.end()
	fds := &receiver{conn: p.conn}
	defer fds.drop()
	for {
		m, err := decode(fds, maxInside)
		if err != nil {
			return
		}
		switch {
		case m.Type == msgSocket:
			p.sockets.answer(m, fds.take())
			continue
		case m.Type == msgStarted && p.term != nil && p.term.master == nil:
			if err = p.term.take(fds.take()); err != nil {
				m = &message{Type: msgFailed, Reason: ReasonProtocol, Detail: err.Error()}
			}
		case m.Type == msgGuard && p.facts.guard != nil && p.cage == nil:
			p.cage = fds.take()
		case m.Type == msgListeners && p.pair.HTTP == nil:
			if p.pair, p.spare, err = fds.listeners(); err != nil {
				m = &message{Type: msgFailed, Reason: ReasonProtocol, Detail: err.Error()}
			}
		}
		fds.drop()
		p.messages <- m
	}
}

// await waits until the sandbox stands.
func (p *Process) await(ctx context.Context) error {
	expected := []string{msgListeners, msgReady}
	if p.facts.Terminal {
		expected = expected[1:] // there is nothing to listen for
	}
	for _, want := range expected {
		select {
		case m, ok := <-p.messages:
			switch {
			case !ok:
				return p.died(ctx)
			case m.Type != want:
				return &Refusal{Reason: ReasonProtocol, Detail: fmt.Sprintf("the inside of the sandbox said %q %s", m.Type, m.Detail)}
			}
		case <-ctx.Done():
			return p.late(ctx)
		}
	}
	// Mounted: from now on it has no name.
	return p.unname()
}

// died says why bubblewrap ended before the sandbox stood.
func (p *Process) died(ctx context.Context) error {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return p.late(ctx)
	}
	r := classify(p.stderr.String())
	if r.Reason == ReasonStart {
		r.Detail += fmt.Sprintf(" (it ended with %d)", p.code)
	}
	return r
}

func (p *Process) late(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("start sandbox: %w", context.Cause(ctx))
	}
	p.Kill() // so that what it says has an end
	r := &Refusal{
		Reason: ReasonTimeout, Detail: "the sandbox did not stand in time",
		Cure: "try again if this machine is busy; else see whether bubblewrap works by itself: " + tryBwrap,
	}
	if said := lastLine(p.stderr.String()); said != "" {
		r.Detail += ": " + said
	}
	return r
}

func (p *Process) unname() error {
	if p.git == nil {
		return nil
	}
	if err := os.Remove(p.git.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the name of the git configuration: %w", err)
	}
	return nil
}

// release frees what a start that failed has taken.
func (p *Process) release() {
	if p.git != nil {
		_ = p.unname()
		_ = p.git.Close()
	}
	if p.conn != nil {
		_ = p.conn.Close()
	}
	if p.child != nil {
		<-p.ended
		for range p.messages { // the reader ends when the connection has
		}
	}
	_ = p.pair.Close()
	p.spare.close()
	if p.stderr != nil {
		p.stderr.close()
	}
	_ = p.term.finish()
	_ = p.stdio.wait()
	p.placed.remove() // nothing runs any more that it could keep from anything
}

// maxFDs is how many descriptors a message brings at most.
const maxFDs = 2 + maxLow
