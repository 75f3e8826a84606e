package proxy

import (
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// seats bounds the client connections of all Servers of a process by its
// descriptors. Without that, one run that opens tunnels takes the descriptors of
// every other run, and those with which the next run would be let in.
type seats struct {
	most  int64 // client connections; each may need a second descriptor upstream
	pipes int64 // kernel pipes of tunnels that move bulk, two descriptors each

	taken   atomic.Int64
	leaving atomic.Int64 // turned away, and still being told
}

// allSeats are those of this process.
var allSeats = sync.OnceValue(func() *seats {
	// Unknown is taken for the least that systems give.
	descriptors := uint64(256)
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		descriptors = limit.Cur // Go has raised it to the hard limit
	}
	return newSeats(descriptors)
})

// newSeats shares descriptors out. A thirty-second part, 128 at least and 1,024 at
// most, is kept back for what is no client connection: doors, lent listeners,
// look-ups, the forge, files. A sixty-fourth is for pipes, and the rest for
// connections: 9,500 of 20,000, a common hard limit.
func newSeats(descriptors uint64) *seats {
	const least, few, many = 16, 128, 1 << 20
	n := int64(min(descriptors, many))
	reserve := min(max(n/32, few), 1024)
	pipes := n / 128
	return &seats{most: max((n-reserve-2*pipes)/2, least), pipes: pipes}
}

func (s *seats) take() bool {
	if s.taken.Add(1) <= s.most {
		return true
	}
	s.taken.Add(-1)
	return false
}

func (s *seats) give() { s.taken.Add(-1) }

// What is said to a client that is turned away, before anything of it was read:
// the answer of HTTP, and both answers of a SOCKS handshake.
var (
	tooManyHTTP  = func() []byte { r := tooManyReply(); return r.append(nil) }()
	tooManySOCKS = append([]byte{socksVersion, methodNone}, socksReply(replyFailure)...)
)

// maxLeaving bounds those who are being told that there are too many, since they
// live on the reserve. Who comes then is closed without a word.
const maxLeaving = 16

// warn logs once a second at most what is brought about from outside: a client
// that tries again and again must not fill the log.
func (s *Server) warn(message string, attrs ...slog.Attr) {
	now := time.Now().UnixNano()
	if last := s.warned.Load(); now-last > int64(time.Second) && s.warned.CompareAndSwap(last, now) {
		s.log.LogAttrs(s.ctx, slog.LevelWarn, message, attrs...)
	}
}

// turnAway tells a client why it is not served. The caller has added it to s.wg.
func (s *Server) turnAway(conn net.Conn, words []byte) {
	s.count.overflow.Add(1)
	s.warn("too many connections, some are turned away",
		slog.Int("session_limit", s.limits.Conns), slog.Int64("process_limit", s.seats.most),
		slog.Int64("process_open", s.seats.taken.Load()), slog.Int64("turned_away", s.count.overflow.Load()))
	if len(words) == 0 {
		reset(conn)
		s.wg.Done()
		return
	}
	if s.seats.leaving.Add(1) > maxLeaving {
		s.seats.leaving.Add(-1)
		_ = conn.Close()
		s.wg.Done()
		return
	}
	go func() {
		defer s.wg.Done()
		defer s.seats.leaving.Add(-1)
		defer func() { _ = conn.Close() }()
		// Reading on until the client has read its answer: a close with bytes
		// unread would reset the connection and take the answer back.
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write(words); err != nil {
			return
		}
		if cw, ok := conn.(closeWriter); ok && cw.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, conn, 64<<10)
		}
	}()
}
