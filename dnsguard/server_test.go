package dnsguard

import (
	"net"
	"testing"
)

// dialServer starts a server of v on loopback and connects to it.
func dialServer(t testing.TB, v *View, proto string) (conn net.Conn, stop func()) {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	streams, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(v)
	served := make(chan error, 1)
	go func() { served <- s.Serve(packets, streams) }()
	addr := packets.LocalAddr().String()
	if proto == TCP {
		addr = streams.Addr().String()
	}
	if conn, err = net.Dial(proto, addr); err != nil {
		t.Fatal(err)
	}
	return conn, func() {
		conn.Close()
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
}
