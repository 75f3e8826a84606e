package egress

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestTCPAddrs(t *testing.T) {
	for _, c := range []struct {
		listen string
		want   string
	}{
		{":8080", "[::]:8080"},
		{"tcp/:8080", "[::]:8080"},
		{"0.0.0.0:80", "0.0.0.0:80"},
		{"tcp6/[::1]:80", "[::1]:80"},
		{"localhost:2019", "127.0.0.1:2019 [::1]:2019"},
		{"site.example:443", "[::]:443"}, // whatever it resolves to is one of this machine's
		{"127.0.0.1:80-82", "127.0.0.1:80 127.0.0.1:81 127.0.0.1:82"},
		{"sandbox/git:80", ""},
		{"unix//run/x.sock", ""},
		{"udp/:53", ""},
		{"fd/3", ""},
	} {
		t.Run(c.listen, func(t *testing.T) {
			addrs, err := tcpAddrs([]string{c.listen})
			if err != nil {
				t.Fatal(err)
			}
			var texts []string
			for _, a := range addrs {
				texts = append(texts, a.String())
			}
			if got := strings.Join(texts, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, err := tcpAddrs([]string{"127.0.0.1:x"}); err == nil {
		t.Error("a malformed address: accepted")
	}
}

// TestListening asks the kernel: what listens is found, in either family, and
// what is connected or closed is not.
func TestListening(t *testing.T) {
	v4, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	want := []net.Listener{v4}
	if v6, err := net.Listen("tcp6", "[::1]:0"); err == nil { // not every machine has it
		want = append(want, v6)
	}
	conn, err := net.Dial("tcp", v4.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	found, err := listening()
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range want {
		if !slices.Contains(found, netip.MustParseAddrPort(ln.Addr().String())) {
			t.Errorf("%s is not among %v", ln.Addr(), found)
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	}
	if slices.Contains(found, netip.MustParseAddrPort(conn.LocalAddr().String())) {
		t.Error("a connection counts as a listener")
	}
	if found, err = listening(); err != nil || slices.Contains(found, netip.MustParseAddrPort(v4.Addr().String())) {
		t.Errorf("a closed listener is found: %v, %v", found, err)
	}
}

func TestOwnAmong(t *testing.T) {
	own := ownAmong([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:2019"), netip.MustParseAddrPort("[::]:80")})
	for addr, want := range map[string]bool{
		"127.0.0.1:2019":          true,
		"[::ffff:127.0.0.1]:2019": true,
		"0.0.0.0:2019":            true,
		"127.0.0.1:2020":          false,
		"192.0.2.1:2019":          false,
		"127.0.0.1:80":            true,
		"127.1.2.3:80":            true,
		"[::1]:80":                true,
		"192.0.2.1:80":            false,
	} {
		if got := own(netip.MustParseAddrPort(addr)); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}
