//go:build linux

package netlab_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/integration/netlab"
)

// A room has sockets of its own, at every address, and the lab does not see them.
func TestRoom(t *testing.T) {
	netlab.Run(t, func(lab *netlab.Lab) {
		room, err := lab.Room()
		if err != nil {
			t.Fatal(err)
		}
		defer room.Close()
		var ln net.Listener
		err = room.Do(func() (err error) {
			ln, err = net.Listen("tcp4", "0.0.0.0:443")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if c, err := net.Dial("tcp4", "198.18.0.7:443"); err == nil {
			c.Close()
			t.Error("the lab reaches a listener of the room")
		}
		var conn net.Conn
		err = room.Do(func() (err error) {
			conn, err = net.Dial("tcp4", "198.18.0.7:443")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if at := got.LocalAddr().String(); at != "198.18.0.7:443" {
			t.Errorf("accepted at %s", at)
		}
		// Outside the room the program is where it was.
		same, err := net.Listen("tcp4", "0.0.0.0:443")
		if err != nil {
			t.Fatalf("the room's port is taken in the lab: %v", err)
		}
		same.Close()
	})
}

// A script answers message by message, with whatever packets it likes.
func TestScript(t *testing.T) {
	server, err := netlab.ListenDNSPort(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.SetScript(func(req *dns.Msg, tcp bool) [][]byte {
		m := new(dns.Msg).SetReply(req)
		m.Truncated = !tcp
		raw, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		return [][]byte{raw, raw}
	})
	for _, network := range []string{"udp", "tcp"} {
		client := &dns.Client{Net: network, Timeout: 20 * time.Second}
		m, _, err := client.Exchange(new(dns.Msg).SetQuestion("a.example.", dns.TypeA), server.Addr().String())
		if err != nil || m.Truncated != (network == "udp") {
			t.Errorf("%s: %v, %v", network, m, err)
		}
	}
	if seen := server.Queries(); len(seen) != 2 || !seen[1].TCP {
		t.Errorf("the log is %v", seen)
	}
	server.SetScript(nil)
	m, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion("a.example.", dns.TypeA), server.Addr().String())
	if err != nil || m.Rcode != dns.RcodeNameError {
		t.Errorf("after the script: %v, %v", m, err)
	}
}
