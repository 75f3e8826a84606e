package proxy

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lookoutAfter is how long an exchange may take before anybody looks whether the
// client is still there.
const lookoutAfter = time.Second

// lookout notices a client that leaves while its answer is awaited, so that the
// upstream stops too: an aborted request to a model would otherwise compute to
// its end. Like net/http it takes the client's end of stream for its leaving,
// though a half-close would look the same. Requests that are quick never pay
// more than a timer for it.
type lookout struct {
	timer *time.Timer
	quit  chan struct{}
	done  chan struct{}
	gone  atomic.Bool
}

// look starts the lookout for x.
func (x *exchange) look() {
	l := &x.lookout
	l.quit, l.done = make(chan struct{}), make(chan struct{})
	l.timer = time.AfterFunc(lookoutAfter, func() {
		defer close(l.done)
		x.watchClient(l)
	})
}

// stopLooking waits until nobody reads from the client any more.
func (x *exchange) stopLooking() {
	l := &x.lookout
	timer := l.timer
	l.timer = nil // it may be asked to stop again before it is started again
	if timer == nil || timer.Stop() {
		return
	}
	close(l.quit)
	x.f.stopReading()
	<-l.done
	_ = x.f.client.SetReadDeadline(time.Time{})
}

func (x *exchange) watchClient(l *lookout) {
	if s := x.sent; s != nil {
		// As long as content comes the sender sees its end.
		select {
		case <-s.done:
		case <-l.quit:
			return
		}
	}
	raw := rawConn(x.f.client)
	if raw == nil {
		return
	}
	left := false
	err := raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return false
		}
		left = err != nil || n == 0
		return true
	})
	if err == nil && left {
		l.gone.Store(true)
		_ = x.up.conn.Close()
	}
}
