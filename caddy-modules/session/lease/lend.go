package lease

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotRunning is the error of Lend when nobody serves the socket.
var ErrNotRunning = errors.New("the appliance is not running")

const (
	// answerTimeout bounds the wait for an answer when the context has no
	// deadline. A read token may have to be minted at a forge meanwhile.
	answerTimeout = 30 * time.Second

	// eventQueue is how many events wait for a launcher that is busy.
	eventQueue = 64
)

// RefusedError is the appliance's refusal, with one of the Code constants.
type RefusedError struct{ Code, Message string }

// Error implements error.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused (%s): %s", e.Code, e.Message) }

// Lease is the launcher's end of a lease that was granted.
type Lease struct {
	conn    *net.UnixConn
	answer  Answer
	events  chan Event
	done    chan struct{}
	reading sync.WaitGroup
	dropped atomic.Uint64
	end     string // set before done is closed
	terms   *Terms // the last that came; set before done is closed

	write  sync.Mutex // one report at a time
	broken bool       // half of one is out
}

// Lend offers the pair to the appliance whose lease socket is at path and waits
// for its answer. The caller keeps its listeners and must not accept from them
// while the lease lives; after an appliance was lost it lends the same ones
// again, with Resume set. The same holds for the sockets of more.
//
// The error wraps ErrNotRunning when nobody serves path, is a *RefusedError
// when the appliance says no, and is the connection's otherwise. Version and
// PID of the hello are filled in when they are zero, Sockets in any case.
func Lend(ctx context.Context, path string, h Hello, p Pair, more ...Lent) (*Lease, error) {
	h.Sockets = nil
	for _, l := range more {
		if _, err := l.conn(); err != nil {
			return nil, err
		}
		h.Sockets = append(h.Sockets, l.Socket)
	}
	if h.Version == 0 {
		h.Version = Version
	}
	if h.PID == 0 {
		h.PID = os.Getpid()
	}
	if err := h.validate(); err != nil {
		return nil, fmt.Errorf("lend: %w", err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
		defer cancel()
	}
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	// A context that ends while we wait for the answer ends the wait.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	br := bufio.NewReader(conn)
	answer, err := converse(conn, br, h, p, more)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lend: %w", err), conn.Close())
	}
	l := &Lease{conn: conn, answer: answer, events: make(chan Event, eventQueue), done: make(chan struct{})}
	l.reading.Go(func() { l.read(br) })
	return l, nil
}

func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("lend to %s: %w", path, ErrNotRunning)
		}
		return nil, fmt.Errorf("lend to %s: %w", path, err)
	}
	conn := c.(*net.UnixConn) //nolint:forcetypeassert // network "unix" has no other
	// Whoever squats on the path must not be given the listeners, nor a token.
	peer, err := PeerOf(conn)
	if err == nil {
		err = CheckPeer(peer)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lend to %s: %w", path, err), conn.Close())
	}
	return conn, nil
}

func converse(conn *net.UnixConn, br *bufio.Reader, h Hello, p Pair, more []Lent) (Answer, error) {
	line, err := encodeLine(h)
	if err != nil {
		return Answer{}, err
	}
	sendErr := send(conn, line, p, more)
	// An appliance that refuses hangs up, perhaps while we still write: what it
	// said is worth more than the broken pipe.
	reply, err := readLine(br)
	if err != nil {
		return Answer{}, errors.Join(sendErr, fmt.Errorf("read answer: %w", err))
	}
	var a Answer
	if err := json.Unmarshal(reply, &a); err != nil {
		return Answer{}, fmt.Errorf("decode answer: %w", err)
	}
	switch {
	case a.Error != nil:
		return Answer{}, &RefusedError{a.Error.Code, a.Error.Message}
	case !a.OK:
		return Answer{}, errors.New("decode answer: neither granted nor refused")
	}
	return a, sendErr
}

// send writes the hello, its first bytes with the descriptors attached.
func send(conn *net.UnixConn, line []byte, p Pair, more []Lent) error {
	var n int
	err := withMore(p, more, func(fds []int) (err error) {
		n, _, err = conn.WriteMsgUnix(line, unix.UnixRights(fds...), nil)
		return err
	})
	if err == nil && n < len(line) {
		// A full socket buffer takes a part; the descriptors went with it.
		_, err = conn.Write(line[n:])
	}
	if err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	return nil
}

func (l *Lease) read(br *bufio.Reader) {
	defer close(l.done)
	defer close(l.events)
	defer l.conn.Close()
	for {
		line, err := readLine(br)
		if err != nil {
			return
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return
		}
		if e.Type == EventTerms {
			// Kept apart from the queue as well: a session that was tightened must not
			// be lent again as it was before, so that terms which cannot be read are
			// its end.
			terms, err := readTerms(line)
			if err != nil {
				l.end = EndRequested
				return
			}
			l.terms = &terms
			continue
		}
		if e.Type == EventSessionClose {
			// Kept apart from the queue, where it might find no room: whether to lend
			// again hangs on it.
			l.end = e.Text("code")
		}
		select {
		case l.events <- e:
		default:
			// A launcher that does not look must not make the appliance wait.
			l.dropped.Add(1)
		}
	}
}

// readLine reads one line of at most MaxMessage bytes, without its newline.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > MaxMessage:
			return nil, fmt.Errorf("line longer than %d bytes", MaxMessage)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		return line[:len(line)-1], nil
	}
}

// Answer is what the appliance said.
func (l *Lease) Answer() Answer { return l.answer }

// Events carries the session's events; it is closed when the lease ends. Up to
// 64 wait to be read, later ones are counted by Dropped.
func (l *Lease) Events() <-chan Event { return l.events }

// Dropped is how many events were lost because nobody read Events.
func (l *Lease) Dropped() uint64 { return l.dropped.Load() }

// Done is closed when the lease has ended, by Close or because the appliance
// is gone.
func (l *Lease) Done() <-chan struct{} { return l.done }

// End says how the appliance ended the session, as one of the End constants, and
// waits until the lease has ended. It is empty when the connection ended without
// a word: the appliance was killed, or Close was called.
func (l *Lease) End() string {
	<-l.done
	return l.end
}

// Terms are those of the session as the appliance has last changed them, nil where it
// has not. It waits until the lease has ended.
func (l *Lease) Terms() *Terms {
	<-l.done
	return l.terms
}

// Close ends the lease and with it the session. The listeners are the caller's.
func (l *Lease) Close() error {
	err := l.conn.Close()
	l.reading.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Warm has the wire form ready before the first lease: a program that starts for one
// lease alone would wait for that when it has listeners to lend, and has time before.
func Warm() {
	_, _ = encodeLine(Hello{})
	_ = json.Unmarshal([]byte("{}"), new(Answer))
}
