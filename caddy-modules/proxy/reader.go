package proxy

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// errFull says that a reader holds as many bytes as it was allowed to.
var errFull = errors.New("read: more bytes than the limit")

// reader buffers what a client sends until somebody knows what it is. Nothing is
// consumed by looking at it: pipelined requests, and the first bytes of a tunnel
// that came in the packet of its CONNECT, stay here for whoever is next.
type reader struct {
	conn net.Conn
	// One of the two is the memory behind buf, or neither.
	small *[smallSize]byte
	large *[largeSize]byte
	buf   []byte
	r, w  int
}

// bytes are those read and not yet consumed. They are valid until the next call
// of a method.
func (b *reader) bytes() []byte { return b.buf[b.r:b.w] }

func (b *reader) discard(n int) {
	b.r += n
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
}

// fill blocks until at least one more byte is here, and gives errFull when limit
// bytes already are.
func (b *reader) fill(limit int) error {
	if b.w-b.r >= min(limit, largeSize) {
		return errFull
	}
	switch {
	case b.buf == nil:
		b.small = getSmall()
		b.buf = b.small[:]
	case b.r > 0 && b.w == len(b.buf):
		b.w = copy(b.buf, b.buf[b.r:b.w])
		b.r = 0
	}
	if b.w == len(b.buf) {
		b.grow()
	}
	n, err := b.conn.Read(b.buf[b.w:])
	if n > 0 {
		b.w += n
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// fillLater is fill for bytes that may be long in coming. No memory is held while
// they are.
func (b *reader) fillLater(limit int) error {
	b.releaseIfEmpty()
	if raw := rawConn(b.conn); raw != nil && b.buf == nil {
		// Whatever ends the wait, an error too, is what fill then meets.
		_ = raw.Read(func(fd uintptr) bool {
			var one [1]byte
			_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		})
	}
	return b.fill(limit)
}

// grow moves to a large buffer, for long heads and for content.
func (b *reader) grow() {
	if b.large != nil {
		return
	}
	large := getLarge()
	b.w = copy(large[:], b.buf[b.r:b.w])
	b.r = 0
	b.release()
	b.large, b.buf = large, large[:]
}

// release gives the memory back; what was not consumed is lost.
func (b *reader) release() {
	if b.small != nil {
		putSmall(b.small)
	}
	if b.large != nil {
		putLarge(b.large)
	}
	b.small, b.large, b.buf = nil, nil, nil
}

// rest says where unread bytes are and forgets positions once they are empty, so
// that an idle connection can give its memory back.
func (b *reader) releaseIfEmpty() {
	if b.r == b.w {
		b.r, b.w = 0, 0
		b.release()
	}
}
