package ports

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxConns bounds the connections that one run's ports carry at a time. Whoever
	// comes then waits in the queue of the kernel.
	maxConns = 256

	// dialTimeout bounds one connection to the far side: it is this machine.
	dialTimeout = 5 * time.Second

	// drainTime is how long what a command said last may take to be read by who it
	// was for.
	drainTime = time.Second

	// acceptPause is the pause after an accept that failed, of want of descriptors
	// mostly.
	acceptPause = 50 * time.Millisecond
)

// Sandbox is what is needed of one.
type Sandbox interface {
	Dial(ctx context.Context, port uint16) (*net.TCPConn, error)
	Listen(ctx context.Context, port uint16) ([]*net.TCPListener, error)
}

// Forward is the open ports of one run.
type Forward struct {
	set       Set
	published [][]*net.TCPListener // as in set.Publish

	ctx    context.Context //nolint:containedctx // the run's own life, ended by Close
	cancel context.CancelFunc
	seats  chan struct{}

	tasks sync.WaitGroup
	said  sync.WaitGroup // what the sandbox says, on its way

	mu     sync.Mutex
	conns  map[*net.TCPConn]bool
	lns    []*net.TCPListener
	over   bool // nothing begins any more
	closed bool // and nothing goes on
}

// Open takes the ports of the host, before anything is started. Nobody is answered
// before Start. The error is a *sandbox.Refusal. Close it.
func Open(ctx context.Context, set Set) (*Forward, error) {
	f := &Forward{set: set, seats: make(chan struct{}, maxConns), conns: map[*net.TCPConn]bool{}}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, p := range set.Publish {
		lns, err := publish(ctx, p)
		if err != nil {
			f.Close()
			return nil, err
		}
		f.published, f.lns = append(f.published, lns), append(f.lns, lns...)
	}
	return f, nil
}

// Start opens the ports inside, and serves all of them.
func (f *Forward) Start(ctx context.Context, s Sandbox) error {
	for _, g := range f.set.Grants {
		lns, err := s.Listen(ctx, g.Inside)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.lns = append(f.lns, lns...)
		f.mu.Unlock()
		for _, ln := range lns {
			f.tasks.Go(func() {
				f.serve(ln, func(inside *net.TCPConn) {
					f.lead(inside, nil, func() (*net.TCPConn, error) { return dialHost(f.ctx, g.Host) })
				})
			})
		}
	}
	for i, p := range f.set.Publish {
		for _, ln := range f.published[i] {
			f.tasks.Go(func() {
				f.serve(ln, func(host *net.TCPConn) {
					f.lead(nil, host, func() (*net.TCPConn, error) { return s.Dial(f.ctx, p.Inside) })
				})
			})
		}
	}
	return nil
}

// serve accepts until the listener is closed.
func (f *Forward) serve(ln *net.TCPListener, handle func(*net.TCPConn)) {
	for {
		c, err := ln.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(acceptPause)
			continue
		}
		select {
		case f.seats <- struct{}{}:
		case <-f.ctx.Done():
			reset(c)
			return
		}
		f.tasks.Go(func() {
			defer func() { <-f.seats }()
			handle(c)
		})
	}
}

// lead joins a connection of the one side, the other being nil, to what dial gives of
// the other. A far side that cannot be had resets it: that is the nearest to what the
// kernel says where nobody listens.
func (f *Forward) lead(inside, host *net.TCPConn, dial func() (*net.TCPConn, error)) {
	near := host
	if host == nil {
		near = inside
	}
	if !f.begin() {
		reset(near)
		return
	}
	said := sync.OnceFunc(f.said.Done)
	defer said()
	if !f.enter(near) {
		return
	}
	defer f.leave(near)
	far, err := dial()
	if err != nil {
		reset(near)
		return
	}
	if !f.enter(far) {
		reset(near)
		return
	}
	defer f.leave(far)
	if host == nil {
		host = far
	} else {
		inside = far
	}
	f.join(inside, host, said)
}

// join copies both ways, each to its own end: one side that has said all may still
// listen. Two TCP connections are spliced, so that the bytes stay in the kernel. said is
// called when all that the inside said is passed on.
func (f *Forward) join(inside, host *net.TCPConn, said func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer said()
		pass(host, inside)
	}()
	pass(inside, host)
	<-done
}

func pass(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		// Broken on either side is broken on both.
		reset(to)
		reset(from)
		return
	}
	_ = to.CloseWrite()
}

// reset closes a connection so that the far end cannot take it for a proper end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// begin counts a connection whose bytes Close waits for, unless it is too late for one.
func (f *Forward) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.said.Add(1)
	}
	return !f.over
}

// enter keeps a connection, so that Close finds it; after Close it is reset.
func (f *Forward) enter(c *net.TCPConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		reset(c)
		return false
	}
	f.conns[c] = true
	return true
}

func (f *Forward) leave(c *net.TCPConn) {
	f.mu.Lock()
	delete(f.conns, c)
	f.mu.Unlock()
	_ = c.Close()
}

// Close closes the ports and, when what the sandbox has said is passed on, their
// connections. It is called when the sandbox has ended, or was never started.
func (f *Forward) Close() {
	f.mu.Lock()
	f.over = true
	lns := f.lns
	f.mu.Unlock()
	closeAll(lns)
	passed := make(chan struct{})
	go func() {
		f.said.Wait()
		close(passed)
	}()
	t := time.NewTimer(drainTime)
	defer t.Stop()
	select {
	case <-passed:
	case <-t.C:
	}
	f.cancel()
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.tasks.Wait()
	<-passed
}
