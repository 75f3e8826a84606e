package session

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"postern/caddy-modules/session/lease"
)

func TestOwnMatches(t *testing.T) {
	o := newOwn()
	o.interfaces = func() ([]net.Addr, error) {
		return []net.Addr{
			&net.IPNet{IP: net.IPv4(192, 0, 2, 7), Mask: net.CIDRMask(24, 32)},
			&net.IPNet{IP: net.ParseIP("2001:db8::7"), Mask: net.CIDRMask(64, 128)},
		}, nil
	}
	o.set("site", []netip.AddrPort{netip.MustParseAddrPort("[::]:8443")})
	o.set("session", []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:20001")})
	for _, c := range []struct {
		at   string
		want bool
	}{
		{"127.0.0.1:20001", true},
		{"127.9.9.9:20001", true},
		{"[::1]:20001", true},
		{"0.0.0.0:20001", true},
		{"[::]:20001", true},
		{"[::ffff:127.0.0.1]:20001", true},
		{"[::ffff:127.0.0.1%x.example]:20001", true},
		{"[fe80::1%eth0]:20001", false},
		{"192.0.2.7:20001", true},
		{"[::ffff:192.0.2.7]:20001", true},
		{"[2001:db8::7]:20001", true},
		{"192.0.2.8:20001", false},
		{"127.0.0.1:20002", false},
		{"192.0.2.7:20002", false},
		{"127.0.0.1:8443", true},
		{"192.0.2.7:8443", true},
		{"198.51.100.1:8443", false},
	} {
		if got := o.match(netip.MustParseAddrPort(c.at)); got != c.want {
			t.Errorf("%s: %v", c.at, got)
		}
	}
	if !o.match(netip.AddrPortFrom(netip.Addr{}, 8443)) {
		t.Error("no address at an own port is not refused")
	}
}

// An old and a new configuration may name the same port for a while; it stays
// own until neither does.
func TestOwnCounts(t *testing.T) {
	o := newOwn()
	at := netip.MustParseAddrPort("127.0.0.1:8443")
	type key struct{ n int }
	o.set(key{1}, []netip.AddrPort{at, at})
	o.set(key{2}, []netip.AddrPort{at})
	o.set(key{1}, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")})
	if !o.match(at) {
		t.Error("the other key's address is gone")
	}
	o.set(key{2}, nil)
	o.set(key{3}, nil)
	if o.match(at) {
		t.Error("still own")
	}
	o.set(key{1}, nil)
	if len(o.ports) != 0 || len(o.sets) != 0 {
		t.Errorf("left behind: %v %v", o.ports, o.sets)
	}
}

func TestOwnInterfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwn()
		asked, addrs, err := 0, []net.Addr{}, errors.New("no netlink")
		o.interfaces = func() ([]net.Addr, error) { asked++; return addrs, err }
		o.set("x", []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:80")})
		at := netip.MustParseAddrPort("192.0.2.7:80")
		if !o.match(at) {
			t.Error("unknown interfaces are not refused")
		}
		err = nil
		for range 3 {
			if o.match(at) {
				t.Error("a foreign address is ours")
			}
		}
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
		addrs = []net.Addr{&net.IPNet{IP: net.IPv4(192, 0, 2, 7), Mask: net.CIDRMask(24, 32)}}
		time.Sleep(interfacesFor + 1)
		if !o.match(at) {
			t.Error("a new address is not seen")
		}
	})
}

// The ports of sessions are own from before their first connection until after
// their last; no rule opens them, for the session itself neither.
func TestSessionPortsAreOwn(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r, "127.0.0.1"))
	a, b := open(t, r, lease.Spec{ID: "a"}), open(t, r, lease.Spec{ID: "b"})
	for _, target := range []string{a.HTTP, a.SOCKS, b.HTTP, b.SOCKS} {
		got := connect(t, "tcp", a.HTTP, target)
		if got.status != 403 || got.reason != "own_listener" {
			t.Errorf("%s: %s, %s", target, got.phrase, got.reason)
		}
	}
	if err := r.Close("b"); err != nil {
		t.Fatal(err)
	}
	if r.Own(netip.MustParseAddrPort(b.HTTP)) {
		t.Error("a closed session's port is still own")
	}
}

func BenchmarkOwn(b *testing.B) {
	o := newOwn()
	for p := range uint16(2000) {
		o.set(p, []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 20000+p)})
	}
	at := netip.MustParseAddrPort("192.0.2.7:443")
	b.ReportAllocs()
	for b.Loop() {
		o.match(at)
	}
}
