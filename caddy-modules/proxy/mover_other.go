//go:build !linux

package proxy

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// mover moves bytes one way. The buffer is taken only when bytes are there and
// given back before it waits for more, so that an idle tunnel holds none.
type mover struct {
	dst     net.Conn
	in, out syscall.RawConn

	buf *[largeSize]byte
	n   int // of the last read; 0 is the end
	err error
}

func (m *mover) read(fd uintptr) bool {
	if m.buf == nil {
		m.buf = getLarge()
	}
	for {
		m.n, m.err = unix.Read(int(fd), m.buf[:])
		if !errors.Is(m.err, unix.EINTR) {
			break
		}
	}
	if errors.Is(m.err, unix.EAGAIN) {
		m.free()
		return false
	}
	return true
}

func (m *mover) write() (int64, error) {
	n, err := m.dst.Write(m.buf[:m.n])
	return int64(n), err
}

func (m *mover) free() {
	if m.buf != nil {
		putLarge(m.buf)
		m.buf = nil
	}
}
