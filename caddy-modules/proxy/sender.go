package proxy

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// continuePatience is how long an upstream may think about Expect: 100-continue
// before the content is sent anyway (RFC 9110 section 10.1.1 demands that the
// wait be bounded). abandonAfter is how long content may still go on once the
// answer is complete.
const (
	continuePatience = time.Second
	abandonAfter     = 50 * time.Millisecond
)

// sender forwards content while the answer is awaited, in a goroutine of its own:
// an upstream may answer before it has read everything.
type sender struct {
	x    *exchange
	done chan struct{}
	// Once done is closed: what went wrong, and whether the upstream stopped
	// taking content, which it may do and still answer.
	err      error
	upstream bool
	// reading says that it waits for the client, so that a stall is the
	// client's fault.
	reading atomic.Bool
	sent    atomic.Int64

	// proceed is closed by the first 100 (Continue), quit when the content
	// will not be wanted.
	proceed chan struct{}
	quit    chan struct{}
	once    sync.Once

	mu        sync.Mutex
	continued bool // the client was told to go on
	final     bool // the final answer has begun: nothing may come before it
}

// send starts the sender if there is content left.
func (x *exchange) send() {
	if x.body.done() {
		return
	}
	// A client that has begun to send does not wait, whatever it said.
	waits := x.f.req.expect && len(x.f.in.bytes()) == 0 && x.bytesUp == 0
	x.sent = &sender{
		x: x, done: make(chan struct{}), proceed: make(chan struct{}), quit: make(chan struct{}),
		continued: !waits,
	}
	x.f.in.grow()
	go x.sent.run(waits)
}

func (s *sender) run(waits bool) {
	defer close(s.done)
	if waits && !s.mayGoOn() {
		s.err = errNotWanted
		return
	}
	s.err = s.forward()
	if s.err != nil && !s.upstream {
		// The answer to half a request is of no use, and waiting for it would
		// take until the idle limit.
		_ = s.x.up.conn.Close()
	}
}

// mayGoOn waits for the upstream's 100. When it does not come the client is told
// to go on by us: it has waited long enough, and it was allowed to send.
func (s *sender) mayGoOn() bool {
	patience := time.NewTimer(continuePatience)
	defer patience.Stop()
	select {
	case <-s.proceed:
		return true
	case <-s.quit:
		return false
	case <-patience.C:
		return s.tell(interim100) == nil
	}
}

var interim100 = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// tell passes an interim answer to the client, unless the final one has begun.
func (s *sender) tell(interim []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.final {
		return errNotWanted
	}
	s.continued = true
	_, err := s.x.f.client.Write(interim)
	return err
}

// begin is called before the final answer is written. It says whether the client
// still holds its content back, so that nobody can tell what it sends next.
func (s *sender) begin() (unsent bool) {
	s.mu.Lock()
	s.final = true
	waiting := !s.continued
	s.mu.Unlock()
	if waiting {
		s.stop()
	}
	return waiting
}

func (s *sender) stop() { s.once.Do(func() { close(s.quit) }) }

func (s *sender) forward() error {
	x, conn := s.x, s.x.up.conn
	for !x.body.done() {
		data, err := x.body.take(largeSize)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			if x.body.done() {
				break
			}
			s.reading.Store(true)
			if err := x.f.readContent(); err != nil {
				return err
			}
			s.reading.Store(false)
			continue
		}
		var n int64
		if x.body.coding {
			var line [20]byte
			size := append(strconv.AppendInt(line[:0], int64(len(data)), 16), '\r', '\n')
			pieces := net.Buffers{size, data, []byte("\r\n")}
			n, err = pieces.WriteTo(conn)
		} else {
			var m int
			m, err = conn.Write(data)
			n = int64(m)
		}
		x.f.watch.count(int(n))
		if err != nil {
			s.upstream = true
			return err
		}
		s.sent.Add(int64(len(data)))
		x.f.watch.touch()
	}
	if x.body.coding {
		n, err := conn.Write(x.body.appendEnd(nil))
		x.f.watch.count(n)
		s.upstream = err != nil
		return err
	}
	return nil
}

// stopSending ends the sender wherever it is and gives its error, nil when there
// was none. The upstream and the client's reading end are useless afterwards
// unless it was done already.
func (x *exchange) stopSending() error {
	s := x.sent
	if s == nil {
		return nil
	}
	select {
	case <-s.done:
	default:
		s.stop()
		x.f.stopReading()
		_ = x.up.conn.Close()
		<-s.done
	}
	x.bytesUp += s.sent.Swap(0)
	return s.err
}

// finishSending is for an answer that is complete: content that is still coming
// gets a moment to end. It says whether all of it was sent.
func (x *exchange) finishSending() bool {
	s := x.sent
	if s == nil {
		return true
	}
	select {
	case <-s.done:
	case <-time.After(abandonAfter):
	}
	return x.stopSending() == nil && x.body.done()
}

// appendChunk frames data as one chunk.
func appendChunk(b, data []byte) []byte {
	b = strconv.AppendInt(b, int64(len(data)), 16)
	b = append(b, "\r\n"...)
	b = append(b, data...)
	return append(b, "\r\n"...)
}

// appendEnd ends chunked content, trailers included.
func (c *content) appendEnd(b []byte) []byte {
	b = append(b, "0\r\n"...)
	for _, f := range c.chunks.fields {
		b = appendField(b, f.name, f.value)
	}
	return append(b, "\r\n"...)
}
