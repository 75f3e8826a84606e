package gitgw

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// upload is the body of the request to the forge: our encoding of the head, and
// then the client's pack as it comes. Back-pressure is the network's own; no
// more than two buffers are held.
type upload struct {
	head  *bytes.Reader
	pack  io.Reader // nil when no pack follows
	sent  atomic.Int64
	whole atomic.Bool // everything was handed to the transport
	moved func()      // called at every read: the forge is taking bytes
}

func (u *upload) Read(p []byte) (int, error) {
	u.moved()
	if u.head.Len() > 0 {
		return u.head.Read(p)
	}
	if u.pack == nil {
		u.whole.Store(true)
		return 0, io.EOF
	}
	// The transport's buffer goes straight to the client's connection.
	n, err := u.pack.Read(p)
	u.sent.Add(int64(n))
	if errors.Is(err, io.EOF) {
		u.whole.Store(true)
	}
	return n, err
}

// Close is called by the transport when it stops reading.
func (u *upload) Close() error { return nil }

// push sends the head and the pack. The answer may come while the pack is still
// on its way: receive-pack answers its status line before it reads.
func (u *upstream) push(ctx context.Context, body *upload, size int64, t Token) (*http.Response, error) {
	req, err := u.request(ctx, http.MethodPost, u.forge.repoURL(u.repo, "git-receive-pack"), body, t)
	if err != nil {
		return nil, err
	}
	// -1 means chunked, which git itself uses above 1 MiB.
	req.ContentLength = size
	req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	req.Header.Set("Accept", "application/x-git-receive-pack-result")
	return u.do(req, "application/x-git-receive-pack-result")
}

// packObjects reads the first 12 bytes of a pack, gitformat-pack(5), and
// returns its number of objects.
func packObjects(header []byte) (uint32, error) {
	if len(header) < 12 || string(header[:4]) != "PACK" {
		return 0, errors.New("no pack follows the commands")
	}
	if version := binary.BigEndian.Uint32(header[4:8]); version != 2 && version != 3 {
		return 0, fmt.Errorf("pack version %d is not known", version)
	}
	return binary.BigEndian.Uint32(header[8:12]), nil
}

// errSilent is why a watched request was given up.
var errSilent = fmt.Errorf("no sign of life: %w", context.DeadlineExceeded)

// watchdog cancels a context when its touch is not called for a while.
type watchdog struct {
	timer *time.Timer
	limit time.Duration
}

func newWatchdog(ctx context.Context, limit time.Duration) (context.Context, *watchdog, context.CancelFunc) {
	// The cause tells a forge that fell silent from a client that left.
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{limit: limit, timer: time.AfterFunc(limit, func() { cancel(errSilent) })}
	return ctx, w, func() {
		w.timer.Stop()
		cancel(context.Canceled)
	}
}

func (w *watchdog) touch() { w.timer.Reset(w.limit) }

// answerReader reads the forge's answer: every byte is a sign of life, and how
// it ended is kept.
type answerReader struct {
	r     io.Reader
	touch func()
	cut   error // the connection broke, as opposed to an answer that ended
}

func (a *answerReader) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.touch()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		a.cut = err
	}
	return n, err
}
