package proxy

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

const handshake = "GET http://a.example/chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"

const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n"

func TestForwardWebSocket(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, scripted(switched+"early", func(c net.Conn) {
		_, _ = io.Copy(c, c)
		_ = c.(*net.TCPConn).CloseWrite()
	}))))
	conn := b.connectTo(b.http)
	conn.send(handshake + "ahead")
	resp, err := http.ReadResponse(conn.in, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("Sec-WebSocket-Accept") != "y" {
		t.Fatalf("%v %v", resp, err)
	}
	conn.expect("early")
	conn.expect("ahead")
	conn.send("frames")
	conn.expect("frames")
	if s := b.srv.Stats(); s.OpenTunnels != 1 {
		t.Errorf("%+v", s)
	}
	_ = conn.CloseWrite()
	conn.expectEnd()
	if r := b.awaitClose(); r.Proto != ProtoHTTP || r.BytesUp != 11 || r.BytesDown != 16 || r.Cause != CauseDone {
		t.Errorf("%+v", r)
	}
	if got := b.origin.received(); !strings.Contains(got, "Connection: Upgrade\r\nUpgrade: websocket\r\n") || !strings.HasPrefix(got, "GET /chat HTTP/1.1\r\nHost: a.example\r\n") {
		t.Errorf("the origin got %q", got)
	}
}

func TestForwardWebSocketRefused(t *testing.T) {
	b, conn, resp, _, err := roundTrip(t, "GET", handshake, answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))
	if err != nil || resp.StatusCode != 400 {
		t.Fatalf("%v %v", resp, err)
	}
	conn.send(get(aURL, "a"))
	if resp, _ := conn.response("GET"); resp.StatusCode != 400 {
		t.Errorf("%s", resp.Status)
	}
	if s := b.srv.Stats(); s.Tunnels != 0 {
		t.Errorf("%+v", s)
	}
}

func TestForwardSwitchesToSomethingElse(t *testing.T) {
	for _, answer := range []string{
		strings.Replace(switched, "Upgrade: websocket", "Upgrade: h2c", 1),
		strings.Replace(switched, "Upgrade: websocket", "Upgrade: websocket, h2c", 1),
		strings.Replace(switched, "Upgrade: websocket\r\n", "", 1),
		strings.Replace(switched, "Connection: Upgrade\r\n", "", 1),
	} {
		_, _, resp, _, err := roundTrip(t, "GET", handshake, scripted(answer, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))
		if err != nil || resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%q: %v %v", answer, resp, err)
		}
	}
}
