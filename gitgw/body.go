package gitgw

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A gzip body may inflate to ratio times what came over the wire, after a first
// allowance. Packs are compressed already; more is a bomb.
const (
	inflateFree  = 16 << 20
	inflateRatio = 32
)

var (
	errInflated = errors.New("the gzip body inflates too far")
	errStopped  = errors.New("upload stopped")
)

// longAgo is a deadline that ends every read.
var longAgo = time.Unix(1, 0)

// clientBody is a request's body, read with a stall limit, inflated where the
// client compressed it, and drained at the end. Its reads are serialised, since
// the transport that uploads may still be reading when the push is over.
type clientBody struct {
	raw      io.Reader
	deadline func(time.Time) error
	stall    time.Duration

	aborted atomic.Bool // nothing more is read, not even to drain

	mu      sync.Mutex
	buf     *bufio.Reader // over raw or the inflater
	inflate bool
	wire    int64 // bytes read from raw
	plain   int64 // bytes that came out of the inflater
	failed  error // raw's error other than EOF
	bad     error // what is wrong with the compression
	stopped bool
	until   time.Time // when the connection is given up, whatever it sends; zero for never
}

// newClientBody prepares to read r's body. An error is about the encoding and
// leaves a body that can still be drained.
func newClientBody(rc *http.ResponseController, r *http.Request, stall time.Duration) (*clientBody, error) {
	b := &clientBody{raw: r.Body, deadline: rc.SetReadDeadline, stall: stall}
	b.buf = bufio.NewReaderSize(wireReader{b}, 64<<10)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return b, nil
	case "gzip", "x-gzip":
		zr, err := gzip.NewReader(b.buf)
		if err != nil {
			return b, fmt.Errorf("malformed gzip body: %w", err)
		}
		b.inflate = true
		b.buf = bufio.NewReaderSize(inflateReader{b, zr}, 64<<10)
		return b, nil
	default:
		return b, fmt.Errorf("content encoding %s is not accepted", quote(encoding))
	}
}

// wireReader reads the connection and gives the client a new stall limit with
// each read. While nobody reads, no limit runs: the client may have to wait for
// an approver.
type wireReader struct{ b *clientBody }

func (w wireReader) Read(p []byte) (int, error) {
	// A connection that knows no deadlines leaves the limit to the server.
	limit := time.Now().Add(w.b.stall)
	if !w.b.until.IsZero() && w.b.until.Before(limit) {
		limit = w.b.until
	}
	_ = w.b.deadline(limit)
	if w.b.aborted.Load() {
		// Asked after the limit was set, which may have undone abort's. The server
		// reads what is left of a body before it closes the connection.
		_ = w.b.deadline(longAgo)
		w.b.failed = errRunEnded
		return 0, errRunEnded
	}
	n, err := w.b.raw.Read(p)
	w.b.wire += int64(n)
	if errors.Is(err, io.EOF) {
		// From here the server itself watches the connection for its end, and must
		// not take our old limit for one.
		_ = w.b.deadline(time.Time{})
	} else if err != nil {
		if w.b.aborted.Load() {
			err = errRunEnded
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("client sent nothing for %s: %w", w.b.stall, err)
		}
		w.b.failed = err
	}
	return n, err
}

type inflateReader struct {
	b *clientBody
	z *gzip.Reader
}

func (i inflateReader) Read(p []byte) (int, error) {
	n, err := i.z.Read(p)
	i.b.plain += int64(n)
	switch {
	case i.b.plain > inflateFree && i.b.plain > inflateRatio*i.b.wire:
		n, err = 0, errInflated
		i.b.bad = err
	case err != nil && !errors.Is(err, io.EOF) && i.b.failed == nil:
		i.b.bad = errors.New("malformed gzip body")
	}
	return n, err
}

// Read reads the inflated body. After stop it fails.
func (b *clientBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return 0, errStopped
	}
	return b.buf.Read(p)
}

// peek shows the next n bytes without consuming them.
func (b *clientBody) peek(n int) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Peek(n)
}

// stop ends all use of Read, waiting for one that is under way.
func (b *clientBody) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
}

// abort ends a read that is under way and every later one: the run has ended, and
// its client is owed no answer.
func (b *clientBody) abort() {
	b.aborted.Store(true)
	_ = b.deadline(longAgo)
}

// hurry leaves the client so much time for the rest of its body, however fast it sends.
func (b *clientBody) hurry(within time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Now().Add(within)
}

// drain reads the rest of the request off the wire, without inflating it: a
// client that is answered before it has sent everything takes the answer for a
// broken connection. The stall limit holds; the size does not matter.
func (b *clientBody) drain() error {
	// What the inflater or the buffer still hold does not matter: it was read.
	b.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil {
		return b.failed
	}
	_, err := io.Copy(io.Discard, readerOnly{wireReader{b}})
	return err
}

// err is the connection's own failure, nil while it is sound.
func (b *clientBody) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// malformed is what is wrong with the body's compression, nil for nothing.
func (b *clientBody) malformed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bad
}

// readerOnly hides every method but Read.
type readerOnly struct{ io.Reader }
