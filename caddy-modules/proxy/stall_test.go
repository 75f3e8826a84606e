package proxy

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// lateConn is a client that is written to late, and whose deadlines are set late
// but sooner than that, as when the goroutines that do it are not run for a while.
type lateConn struct{ *net.TCPConn }

func (c lateConn) SetDeadline(at time.Time) error {
	if at.Equal(past) {
		time.Sleep(50 * time.Millisecond)
	}
	return c.TCPConn.SetDeadline(at)
}

func (c lateConn) Write(b []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return c.TCPConn.Write(b)
}

type lateListener struct{ net.Listener }

func (l lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return lateConn{tcp}, err
	}
	return c, err
}

// TestStallIsAnswered: the end of an exchange that stalls and the answer that says
// so must not meet, in whatever order their goroutines run.
func TestStallIsAnswered(t *testing.T) {
	for _, begun := range []string{"", "HTTP/1.1 200 OK\r\nX: "} {
		b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, scripted(begun, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }))))
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- b.srv.ServeHTTP(lateListener{ln}) }()
		conn := b.connectTo(ln.Addr().String())
		conn.send(get(aURL, "a"))
		resp, _, err := conn.tryResponse("GET")
		if err != nil || resp.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("after %q: %v %v", begun, resp, err)
		}
		_ = ln.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
