package gitgw_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// syncBuffer is a log that many goroutines write.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// connLog notes the requests that reach the gateway.
type connLog struct {
	mu   sync.Mutex
	list []string
}

func (c *connLog) note(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf("%s %s?%s length=%d", r.Method, r.URL.Path, r.URL.RawQuery, r.ContentLength))
}

func (c *connLog) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.list, "\n")
}
