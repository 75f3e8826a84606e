package proxy

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestServerAdmit(t *testing.T) {
	var open atomic.Bool
	var asked atomic.Int64
	b := newLab(t, []string{"a.example"}, func(b *lab) {
		b.srv.Admit = func(c net.Conn) error {
			asked.Add(1)
			if _, ok := c.(*net.TCPConn); !ok {
				t.Errorf("asked about a %T", c)
			}
			if !open.Load() {
				return errors.New("not this one")
			}
			return nil
		}
	})
	for _, addr := range []string{b.http, b.socks} {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) { // it may come before Dial returns
			t.Errorf("the client sees %v, want a reset", err)
		}
	}
	await(t, "both to be gone", func() bool { return b.srv.Stats().OpenConns == 0 })
	if s := b.srv.Stats(); s.Unadmitted != 2 || s.Tunnels+s.Malformed+s.Denied != 0 {
		t.Errorf("%+v", s)
	}
	open.Store(true)
	conn := b.connectTo(b.http)
	conn.send(connectTo("a.example:443"))
	if resp, _ := conn.response(http.MethodConnect); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	if asked.Load() != 3 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// Who is being asked about keeps nobody else waiting.
func TestServerAdmitIsSlow(t *testing.T) {
	release := make(chan struct{})
	var first atomic.Bool
	b := newLab(t, []string{"a.example"}, func(b *lab) {
		b.srv.Admit = func(net.Conn) error {
			if first.CompareAndSwap(false, true) {
				<-release
			}
			return nil
		}
	})
	slow := b.connectTo(b.http)
	await(t, "the first to be asked about", first.Load)
	b.tunnel("a.example:443")
	time.AfterFunc(10*time.Millisecond, func() { close(release) })
	slow.send(connectTo("a.example:443"))
	if resp, _ := slow.response(http.MethodConnect); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
}
