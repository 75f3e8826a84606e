package gitgw

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// timed is a connection whose deadline a test can ask for.
type timed struct {
	http.ResponseWriter
	until time.Time
}

func (c *timed) SetReadDeadline(at time.Time) error { c.until = at; return nil }

// After the end of its run a client's connection is not waited for: neither by a read that
// begins then, nor by the server, which reads what is left before it closes it.
func TestAbortedBodyIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	conn := &timed{ResponseWriter: httptest.NewRecorder()}
	b, err := newClientBody(http.NewResponseController(conn), httptest.NewRequest(http.MethodPost, "/", strings.NewReader("text")), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b.abort()
	if !conn.until.Before(time.Now()) {
		t.Errorf("it is waited for until %s", conn.until)
	}
	if n, err := b.Read(make([]byte, 4)); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if !conn.until.Before(time.Now()) {
		t.Errorf("after a read it is waited for until %s", conn.until)
	}
}

// A client that is hurried has no more time with each byte.
func TestHurriedBody(t *testing.T) {
	t.Parallel()
	conn := &timed{ResponseWriter: httptest.NewRecorder()}
	b, err := newClientBody(http.NewResponseController(conn), httptest.NewRequest(http.MethodPost, "/", endlessly{}), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	read := func() time.Time {
		if _, err := b.Read(make([]byte, 128<<10)); err != nil {
			t.Fatal(err)
		}
		return conn.until
	}
	if until := read(); time.Until(until) < time.Minute {
		t.Errorf("it has until %s", until)
	}
	b.hurry(time.Second)
	first := read()
	time.Sleep(10 * time.Millisecond)
	if second := read(); time.Until(first) > time.Second || !second.Equal(first) {
		t.Errorf("it has until %s, and then until %s", first, second)
	}
}

type endlessly struct{}

func (endlessly) Read(b []byte) (int, error) { return len(b), nil }
