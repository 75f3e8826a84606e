package sandbox

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// TestSharedLoopbackPorts: on a loopback that is shared, a declared port is in the
// profile, and is led by plain sockets of the host.
func TestSharedLoopbackPorts(t *testing.T) {
	w, dir := standIn(t, "")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	taken := uint16(ln.Addr().(*net.TCPAddr).Port)
	p, err := wrap(t, w, Options{Stdout: devNull(t), Stderr: devNull(t), Reach: []uint16{5432}, Serve: []uint16{3000}})
	must(t, err)
	text := read(t, dir+"/profile")
	for _, want := range []string{`(allow network-outbound (remote tcp "localhost:5432"))`, `(allow network-bind network-inbound (local tcp "localhost:3000"))`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	c, err := p.Dial(t.Context(), taken)
	must(t, err)
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = p.Listen(t.Context(), taken)
	refusal(t, err, ReasonPortBusy)
	must(t, ln.Close())
	if _, err := p.Dial(t.Context(), taken); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("connected to nobody: %v", err)
	}
	lns, err := p.Listen(t.Context(), taken)
	must(t, err)
	for _, l := range lns {
		_ = l.Close()
	}
}
