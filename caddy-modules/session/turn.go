package session

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// turn is a listener for one server's time. Closing it ends the turn and leaves
// the listener below open for the next server.
type turn struct {
	ln        net.Listener
	over      atomic.Bool
	accepting sync.Mutex
}

// Accept implements net.Listener.
func (t *turn) Accept() (net.Conn, error) {
	t.accepting.Lock()
	defer t.accepting.Unlock()
	if t.over.Load() {
		return nil, t.closed()
	}
	c, err := t.ln.Accept()
	if err != nil && t.over.Load() {
		return nil, t.closed()
	}
	return c, err
}

// end wakes whoever accepts and waits until he has left, so that the next turn
// begins with nobody in between.
func (t *turn) end() {
	if t.over.Swap(true) {
		return
	}
	ln, ok := t.ln.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return
	}
	_ = ln.SetDeadline(time.Unix(1, 0))
	t.accepting.Lock()
	defer t.accepting.Unlock()
	_ = ln.SetDeadline(time.Time{})
}

// Close implements net.Listener.
func (t *turn) Close() error {
	t.end()
	return nil
}

// Addr implements net.Listener.
func (t *turn) Addr() net.Addr { return t.ln.Addr() }

func (t *turn) closed() error {
	return &net.OpError{Op: "accept", Net: t.ln.Addr().Network(), Addr: t.ln.Addr(), Err: net.ErrClosed}
}
