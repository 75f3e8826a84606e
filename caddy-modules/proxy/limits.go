package proxy

import "time"

// Limits bounds what a client or an upstream may cost. The zero value of a field
// is its default; a negative duration or count switches that limit off.
type Limits struct {
	// Header is the time from the first byte of a request head, or from the
	// start of a SOCKS connection, to its end. Default 10 s.
	Header time.Duration
	// KeepAlive is how long a client connection may wait for its next request.
	// Default 2 min.
	KeepAlive time.Duration
	// Hello is the time from the opening of a tunnel to port 443 to the end of
	// its ClientHello. Default 10 s.
	Hello time.Duration
	// Dial covers the lookup and every connection attempt. Default 20 s.
	Dial time.Duration
	// Idle is how long a tunnel, a request body or a response may move no byte
	// in either direction. Default 10 min.
	Idle time.Duration
	// Total is the life of a tunnel or of one plain request. Default 24 h.
	Total time.Duration

	// RequestLine is the longest request line in bytes; more is 414. Default 8 KiB.
	RequestLine int
	// HeaderBlock is the largest header block in bytes, without the request
	// line; more is 431. Default 32 KiB.
	HeaderBlock int
	// HelloSize is the largest ClientHello in bytes, record headers included;
	// more is refused. Default 16 KiB.
	HelloSize int
	// Conns is how many client connections one Server serves at a time; more
	// are turned away. Default 16384, and no more than half of what the
	// descriptors of the process allow for all of them (see seats), so that no
	// session can take what the others live on. What is left for the process
	// holds whatever is set here.
	Conns int

	// Caps of the session, which its Usage holds it to; 0 for none. Tunnels are
	// those open at a time, WebSockets among them, Requests the plain requests under
	// way at a time, those that wait for an approver among them, PerSecond the
	// connections opened to upstreams, and Bytes is what the session may move in both
	// directions in its life, heads of requests included. What is answered in
	// process counts for none of them.
	Tunnels, Requests, PerSecond int
	Bytes                        int64
}

// maxFields bounds the header fields of one request, maxResponseHead the bytes
// of one response head, interim answers included.
const (
	maxFields       = 256
	maxResponseHead = 256 << 10
)

// off stands in for "no limit" once defaults are filled in: longer than any
// process lives, and far from overflowing when added to now.
const off = 100 * 365 * 24 * time.Hour

func (l Limits) withDefaults() Limits {
	l.Header = orDuration(l.Header, 10*time.Second)
	l.KeepAlive = orDuration(l.KeepAlive, 2*time.Minute)
	l.Hello = orDuration(l.Hello, 10*time.Second)
	l.Dial = orDuration(l.Dial, 20*time.Second)
	l.Idle = orDuration(l.Idle, 10*time.Minute)
	l.Total = orDuration(l.Total, 24*time.Hour)
	l.RequestLine = orCount(l.RequestLine, 8<<10)
	l.HeaderBlock = orCount(l.HeaderBlock, 32<<10)
	l.HelloSize = orCount(l.HelloSize, 16<<10)
	l.Conns = orCount(l.Conns, min(16384, int(allSeats().most/2)))
	// The buffers that hold heads and hellos have one size; no setting may
	// outgrow them.
	l.RequestLine = min(l.RequestLine, largeSize/4)
	l.HeaderBlock = min(l.HeaderBlock, largeSize/2)
	l.HelloSize = min(l.HelloSize, largeSize/2)
	return l
}

func orDuration(d, otherwise time.Duration) time.Duration {
	switch {
	case d == 0:
		return otherwise
	case d < 0:
		return off
	default:
		return d
	}
}

func orCount(n, otherwise int) int {
	switch {
	case n == 0:
		return otherwise
	case n < 0:
		return int(^uint(0) >> 1)
	default:
		return n
	}
}
