package proxy

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Splicing pays when there is much to move. A read that fills the whole buffer
// starts it, a splice of less than bulkLeast ends it: small messages cost one
// system call less with a buffer, and no pipe.
const (
	bulkLeast = 16 << 10
	maxSplice = 1 << 20
)

// mover moves bytes one way. The buffer and the pipe are taken only when bytes
// are there, and given back before it waits for more, so that thousands of idle
// tunnels hold neither. (io.Copy between TCP connections holds a pipe, two
// descriptors, for each direction that waits.)
type mover struct {
	dst     net.Conn
	in, out syscall.RawConn

	buf  *[largeSize]byte
	pipe *pipe
	bulk bool

	n   int // of the last read; 0 is the end
	err error
}

// read is called by the poller with the descriptor of the source. It gives false
// to wait until there is something to read.
func (m *mover) read(fd uintptr) bool {
	if m.bulk && m.pipe == nil {
		m.pipe = getPipe()
		m.bulk = m.pipe != nil
	}
	if m.bulk {
		return m.readPipe(int(fd))
	}
	if m.buf == nil {
		m.buf = getLarge()
	}
	m.n, m.err = retry(func() (int, error) { return unix.Read(int(fd), m.buf[:]) })
	if errors.Is(m.err, unix.EAGAIN) {
		putLarge(m.buf)
		m.buf = nil
		return false
	}
	m.bulk = m.n == len(m.buf)
	return true
}

func (m *mover) readPipe(fd int) bool {
	m.n, m.err = retry(func() (int, error) {
		n, err := unix.Splice(fd, nil, m.pipe.w, nil, maxSplice, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		return int(n), err
	})
	if errors.Is(m.err, unix.EAGAIN) {
		// The pipe is empty: write drains it each time.
		putPipe(m.pipe)
		m.pipe = nil
		return false
	}
	if errors.Is(m.err, unix.EINVAL) {
		// No splice from this kind of descriptor: go on with buffers.
		m.bulk = false
		putPipe(m.pipe)
		m.pipe = nil
		return m.read(uintptr(fd))
	}
	m.pipe.held = max(m.n, 0)
	return true
}

// write passes on what read took.
func (m *mover) write() (int64, error) {
	if m.pipe != nil && m.pipe.held > 0 {
		return m.writePipe()
	}
	n, err := m.dst.Write(m.buf[:m.n])
	if m.bulk {
		putLarge(m.buf)
		m.buf = nil
	}
	return int64(n), err
}

func (m *mover) writePipe() (int64, error) {
	var total int64
	var failed error
	err := m.out.Write(func(fd uintptr) bool {
		for m.pipe.held > 0 {
			n, err := retry(func() (int, error) {
				n, err := unix.Splice(m.pipe.r, nil, int(fd), nil, m.pipe.held, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
				return int(n), err
			})
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failed = err
				return true
			}
			m.pipe.held -= n
			total += int64(n)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if err == nil && m.n < bulkLeast {
		m.bulk = false
		putPipe(m.pipe)
		m.pipe = nil
	}
	return total, err
}

// free gives back what an error left behind.
func (m *mover) free() {
	if m.buf != nil {
		putLarge(m.buf)
	}
	if m.pipe != nil {
		putPipe(m.pipe)
	}
}

func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// pipe is a kernel pipe that bytes pass through without being copied.
type pipe struct {
	r, w int
	held int // bytes in it
}

// pipes keeps a few empty pipes for all tunnels of the process. What is beyond
// is closed: descriptors are scarcer than the time to make a pipe.
var pipes = make(chan *pipe, 16)

// openPipes counts those there are, in the channel or not.
var openPipes atomic.Int64

// getPipe gives nil when the process has no descriptors left for it.
func getPipe() *pipe {
	select {
	case p := <-pipes:
		return p
	default:
	}
	var fds [2]int
	if openPipes.Add(1) > allSeats().pipes {
		openPipes.Add(-1)
		return nil
	}
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		openPipes.Add(-1)
		return nil
	}
	// More than the 64 KiB of default halves the calls for bulk. Refused for
	// users that hold many pipes; then it stays as it is.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	return &pipe{r: fds[0], w: fds[1]}
}

const pipeSize = 1 << 20

// putPipe never keeps a pipe with bytes in it: they belong to a tunnel.
func putPipe(p *pipe) {
	if p.held == 0 {
		select {
		case pipes <- p:
			return
		default:
		}
	}
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
	openPipes.Add(-1)
}
