package sandbox

import (
	"io"
	"os"
	"sync"
	"time"
)

// maxTail is how much of bubblewrap's stderr is kept, in bytes: enough for its
// message, and for the stack trace of a PID 1 that crashed.
const maxTail = 16 << 10

// tail reads a pipe to its end and keeps the first maxTail bytes.
type tail struct {
	r    *os.File
	done chan struct{}
	mu   sync.Mutex
	buf  []byte
}

func newTail(r *os.File) *tail {
	t := &tail{r: r, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		_, _ = io.Copy(t, r)
	}()
	return t
}

// Write implements io.Writer; it never fails, so that the writer is never blocked.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b[:min(len(b), maxTail-len(t.buf))]...)
	return len(b), nil
}

// String is what was said until the writers were gone. It waits for that, but not
// for one that does not go.
func (t *tail) String() string {
	select {
	case <-t.done:
	case <-time.After(time.Second):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

func (t *tail) close() {
	_ = t.r.Close()
	<-t.done
}
