package proxy

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// relay moves bytes both ways until both sides have ended, and gives the numbers
// of bytes that went up (to upstream) and down. An end of one side is passed on
// as a half-close, the other direction goes on. When a side breaks, both are
// reset: what was cut off must not look complete. The caller closes both.
//
// first runs before the first byte goes up, with the way down open already: a
// server that speaks first is not kept waiting. It gives the bytes it sent up
// itself. When it gives errRefused the upstream is closed and nothing is reset,
// so that the client can still be told.
//
// Both connections should be bare TCP or Unix connections; then an idle tunnel
// holds no buffer and no pipe, and bulk is moved by splice where the system has
// it. They must be closed from outside to end an idle relay.
func relay(client, upstream net.Conn, w *watch, first func() (int64, error)) (up, down int64, err error) {
	type result struct {
		n   int64
		err error
	}
	back := make(chan result, 1)
	// The direction that ends last need not say so: both connections are closed
	// right after it.
	var ended, refused atomic.Bool
	go func() {
		n, err := pump(client, upstream, w, &ended)
		if err != nil && !refused.Load() {
			reset(client)
			reset(upstream)
		}
		back <- result{n, err}
	}()
	up, err = first()
	if errors.Is(err, errRefused) {
		refused.Store(true)
		_ = upstream.Close()
		// A client that does not read would keep the way down in a write.
		_ = client.SetWriteDeadline(past)
		r := <-back
		_ = client.SetWriteDeadline(time.Time{})
		return 0, r.n, errRefused
	}
	if err == nil {
		var n int64
		n, err = pump(upstream, client, w, &ended)
		up += n
	}
	if err != nil {
		reset(client)
		reset(upstream)
	}
	r := <-back
	return up, r.n, errors.Join(err, r.err)
}

// errRefused is for a tunnel whose first bytes were refused.
var errRefused = errors.New("what the tunnel carries was refused")

// pump moves bytes one way until src ends, and then ends that way of dst.
func pump(dst, src net.Conn, w *watch, ended *atomic.Bool) (int64, error) {
	n, err := move(dst, src, w)
	if err != nil || ended.Swap(true) {
		return n, err
	}
	if cw, ok := dst.(closeWriter); ok {
		err = cw.CloseWrite()
	} else {
		err = dst.Close()
	}
	if isGone(err) {
		// The other side has left already. That is its business, not a
		// failure of this direction.
		err = nil
	}
	return n, err
}

func isGone(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, net.ErrClosed)
}

func move(dst, src net.Conn, w *watch) (int64, error) {
	in, out := rawConn(src), rawConn(dst)
	if in == nil || out == nil {
		return copyPlain(dst, src, w)
	}
	m := mover{dst: dst, in: in, out: out}
	defer m.free()
	// Made once: a method value allocates.
	read := m.read
	var total int64
	for {
		if err := in.Read(read); err != nil {
			return total, err
		}
		if m.err != nil {
			return total, m.err
		}
		if m.n == 0 {
			return total, nil
		}
		w.touch()
		n, err := m.write()
		total += n
		w.count(int(n))
		if err != nil {
			return total, err
		}
		w.touch()
	}
}

// rawConn gives the descriptor of a socket, nil when c is none of ours to poll.
func rawConn(c net.Conn) syscall.RawConn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// copyPlain is for connections that are no sockets (in-process targets).
func copyPlain(dst, src net.Conn, w *watch) (total int64, err error) {
	b := getLarge()
	defer putLarge(b)
	for {
		n, err := src.Read(b[:])
		if n > 0 {
			w.touch()
			m, werr := dst.Write(b[:n])
			total += int64(m)
			w.count(m)
			if werr != nil {
				return total, werr
			}
			w.touch()
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return total, nil
		default:
			return total, err
		}
	}
}
