package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// defaultTimeout bounds the arrival of a hello and each write.
	defaultTimeout = 5 * time.Second

	// maxLent is the most descriptors that a hello brings.
	maxLent = 2 + maxSockets

	// maxStray is how many descriptors one read makes room for. The kernel
	// closes those that do not fit; those that do are counted, and closed.
	maxStray = 16
)

// Acceptor is the appliance's end. The zero value is ready to use.
type Acceptor struct {
	// Timeout bounds how long a hello may take to arrive and how long one
	// message may take to be taken; zero means 5 s.
	Timeout time.Duration

	// Credentials says who the peer is; nil means PeerOf.
	Credentials func(*net.UnixConn) (Peer, error)
}

// Request is a hello that passed every check that needs no configuration. The
// one who took it must call Close at last.
type Request struct {
	Hello   Hello
	Pair    Pair
	More    []Lent // Hello.Sockets, in their order
	PeerUID int
	PeerPID int

	conn    *net.UnixConn
	timeout time.Duration
	closed  chan struct{} // the peer hung up, broke the protocol, or Close was called
	watched sync.WaitGroup
	reports chan Event // what the launcher tells, until closed

	write sync.Mutex // one message at a time
}

// Accept reads and checks one hello. See Acceptor.Accept.
func Accept(c *net.UnixConn) (*Request, error) { return (&Acceptor{}).Accept(c) }

// Accept reads the hello that c carries and checks it: the peer's user, size,
// time, JSON, version, and the descriptors. It owns c. When the hello is
// refused the peer is told why, c and every descriptor that came are closed,
// and the error is a *RefusedError, or the error of the connection.
func (a *Acceptor) Accept(c *net.UnixConn) (*Request, error) {
	timeout := a.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	r := &Request{conn: c, timeout: timeout, closed: make(chan struct{}), reports: make(chan Event, reportQueue)}
	if err := a.receive(r); err != nil {
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			// Best effort: the peer may be gone, or not listening.
			_ = r.send(Answer{Error: &Error{Code: refused.Code, Message: refused.Message}})
		}
		_ = c.Close()
		return nil, fmt.Errorf("accept lease: %w", err)
	}
	r.watched.Go(r.watch)
	return r, nil
}

func (a *Acceptor) receive(r *Request) error {
	credentials := a.Credentials
	if credentials == nil {
		credentials = PeerOf
	}
	peer, err := credentials(r.conn)
	if err != nil {
		return err
	}
	if err := CheckPeer(peer); err != nil {
		return err
	}
	r.PeerUID, r.PeerPID = peer.UID, peer.PID

	// One deadline for all of it, not one for each read: a byte now and then
	// must not keep a connection open.
	if err := r.conn.SetReadDeadline(time.Now().Add(r.timeout)); err != nil {
		return err
	}
	line, fds, err := readHello(r.conn)
	if err != nil {
		closeAll(fds)
		return err
	}
	hello, refusal := decodeHello(line)
	if refusal != nil {
		closeAll(fds)
		return &RefusedError{refusal.Code, refusal.Message}
	}
	pair, more, err := adopt(hello.Sockets, fds)
	if err != nil {
		return &RefusedError{CodeBadDescriptors, err.Error()}
	}
	r.Hello, r.Pair, r.More = hello, pair, more
	return r.conn.SetReadDeadline(time.Time{})
}

// readHello reads up to the first newline, and whatever descriptors come along.
// On an error too the descriptors are the caller's to close.
func readHello(c *net.UnixConn) (line []byte, fds []int, err error) {
	buf := make([]byte, 0, 4096)
	oob := make([]byte, unix.CmsgSpace(maxStray*4))
	for {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(2*cap(buf), MaxMessage+1))
			copy(grown, buf)
			buf = grown
		}
		n, oobn, flags, _, err := c.ReadMsgUnix(buf[len(buf):cap(buf)], oob)
		came, strange := descriptors(oob[:oobn])
		fds = append(fds, came...)
		switch {
		case flags&unix.MSG_CTRUNC != 0 || len(fds) > maxLent:
			return nil, fds, &RefusedError{CodeBadDescriptors, fmt.Sprintf("more than %d descriptors came with the hello", maxLent)}
		case strange:
			return nil, fds, &RefusedError{CodeBadDescriptors, "the hello carries control data that are not descriptors"}
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, fds, &RefusedError{CodeTimeout, "the hello did not arrive in time"}
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fds, fmt.Errorf("read hello: %w", err)
		case n == 0:
			return nil, fds, &RefusedError{CodeBadRequest, "the connection ended before the hello did"}
		}
		end := bytes.IndexByte(buf[len(buf):len(buf)+n], '\n')
		buf = buf[:len(buf)+n]
		switch {
		case end >= 0 && end != n-1:
			return nil, fds, &RefusedError{CodeBadRequest, "something follows the hello"}
		case end >= 0:
			return buf[:len(buf)-1], fds, nil
		case len(buf) > MaxMessage:
			return nil, fds, &RefusedError{CodeTooLarge, fmt.Sprintf("the hello is longer than %d bytes", MaxMessage)}
		}
	}
}

// descriptors takes the descriptors out of control data. strange reports
// control data of another kind, or that it does not parse.
func descriptors(oob []byte) (fds []int, strange bool) {
	if len(oob) == 0 {
		return nil, false
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	strange = err != nil
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		strange = strange || err != nil
		fds = append(fds, got...)
	}
	return fds, strange
}

// watch waits for the peer to hang up.
func (r *Request) watch() {
	r.listen()
	close(r.closed)
	_ = r.conn.Close()
}

// Closed is closed when the lease has ended.
func (r *Request) Closed() <-chan struct{} { return r.closed }

// Wait blocks until the lease has ended.
func (r *Request) Wait() { <-r.closed }

// Reply sends the answer. Once, and before any event.
func (r *Request) Reply(a Answer) error { return r.send(a) }

// Refuse replies that the hello is refused, and why.
func (r *Request) Refuse(code, message string) error {
	return r.send(Answer{Error: &Error{Code: code, Message: message}})
}

// Send sends one event. It may block for the acceptor's timeout when the peer
// does not read, so it belongs behind a queue.
func (r *Request) Send(e Event) error { return r.send(e) }

func (r *Request) send(v any) error {
	line, err := encodeLine(v)
	if err != nil {
		return err
	}
	r.write.Lock()
	defer r.write.Unlock()
	if err := r.conn.SetWriteDeadline(time.Now().Add(r.timeout)); err != nil {
		return fmt.Errorf("write to launcher: %w", err)
	}
	if _, err := r.conn.Write(line); err != nil {
		// Half a line may be out: nothing sent after it could be read.
		_ = r.conn.Close()
		return fmt.Errorf("write to launcher: %w", err)
	}
	return nil
}

// Close ends the lease and closes this process's listeners and
// sockets. It may be called again.
func (r *Request) Close() error {
	err := r.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	r.watched.Wait()
	return errors.Join(err, r.Pair.Close(), closeLent(r.More))
}

// Interface guards.
var (
	_ json.Marshaler   = Event{}
	_ json.Unmarshaler = (*Event)(nil)
)
