package dnsguard

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestFakeIP6(t *testing.T) {
	l := newLab(t, Config{LocalHosts: []string{"git.internal"}, FakeIP6: true})
	set := rules(t, []string{"*.example.com"}, nil)
	v := l.Session("s", l.rulesOf(set), WithFakeIP(true))
	defer v.Close()
	want(t, ask(t, v, "a.example.com", dns.TypeA), dns.RcodeSuccess, "198.18.0.1")
	want(t, ask(t, v, "a.example.com", dns.TypeAAAA), dns.RcodeSuccess, "fd00:706f:7374::1")
	want(t, ask(t, v, "git.internal", dns.TypeAAAA), dns.RcodeSuccess, "fd00:706f:7374::2")
	want(t, ask(t, v, "git.internal", dns.TypeA), dns.RcodeSuccess, "198.18.0.2")
	want(t, ask(t, v, "evil.example", dns.TypeAAAA), dns.RcodeNameError)
	for addr, want := range map[string]string{
		"fd00:706f:7374::1": "a.example.com", "fd00:706f:7374::2": "git.internal", "fd00:706f:7374::2%lo": "git.internal",
		"fd00:706f:7374::": "", "fd00:706f:7374::3": "", "fd00:706f:7374::1:0:1": "", "fd00:706f:7374:1::1": "",
		"fd00:706f:7374::ffff:ffff": "",
	} {
		if name, ok := v.FakeName(netip.MustParseAddr(addr)); name != want || ok != (want != "") {
			t.Errorf("%s: %q", addr, name)
		}
	}
	// A session whose sandbox does not take them has none.
	w := l.Session("w", l.rulesOf(set), WithFakeIP(true), WithFakeIP6(false))
	defer w.Close()
	want(t, ask(t, w, "a.example.com", dns.TypeAAAA), dns.RcodeSuccess)
	if n := len(l.up.queries()); n != 0 {
		t.Errorf("%d upstream queries", n)
	}
}

// TestFakesOfARestoredSession kills the process, so to say: what a client was told
// before must lead to the same name or to none.
func TestFakesOfARestoredSession(t *testing.T) {
	l := newLab(t, Config{})
	set := rules(t, []string{"*.example.com"}, nil)
	v := l.Session("s", l.rulesOf(set), WithFakeIP(true), WithRestored(true))
	defer v.Close()
	m := ask(t, v, "b.example.com", dns.TypeA)
	if len(m.Answer) != 1 {
		t.Fatal(m)
	}
	addr, _ := netip.AddrFromSlice(m.Answer[0].(*dns.A).A.To4())
	if addr == fakeAddr(1) || !fakeNet.Contains(addr) {
		t.Errorf("the first address is %s", addr)
	}
	if name, ok := v.FakeName(addr); !ok || name != "b.example.com" {
		t.Errorf("%s is %q", addr, name)
	}
	if name, ok := v.FakeName(fakeAddr(1)); ok {
		t.Errorf("an address of the time before is %q", name)
	}
	// A view of the next configuration moves nothing.
	w := l.Session("s", l.rulesOf(set), WithFakeIP(true), WithRestored(true))
	defer w.Close()
	want(t, ask(t, w, "b.example.com", dns.TypeA), dns.RcodeSuccess, addr.String())
}

// TestFakePlaces walks the range from a place near its end, so that it wraps.
func TestFakePlaces(t *testing.T) {
	f := fakes{first: fakeCount - 2}
	for i, want := range []string{"198.19.255.253", "198.19.255.254", "198.18.0.1", "198.18.0.2"} {
		name := fmt.Sprint(i)
		place, ok := f.of(name, false)
		if got := fakeAddr(place).String(); !ok || got != want {
			t.Errorf("name %d is at %s, want %s", i, got, want)
		}
		for _, addr := range []netip.Addr{fakeAddr(place), fakeAddr6(place)} {
			if got, ok := f.name(addr); !ok || got != name {
				t.Errorf("%s: %q", addr, got)
			}
		}
	}
	for _, addr := range []string{"198.18.0.0", "198.19.255.255", "198.18.0.3", "198.19.255.252", "192.0.2.1"} {
		if name, ok := f.name(netip.MustParseAddr(addr)); ok {
			t.Errorf("%s: %q", addr, name)
		}
	}
}

// TestServerSwap changes the view behind open sockets: whoever asks is answered
// by the view of the moment, and none of the queries is lost.
func TestServerSwap(t *testing.T) {
	l := newLab(t, Config{})
	before := l.session(t, "s", "old.example.com")
	s := startServer(t, before)
	udp, err := net.Dial("udp", s.packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	tcp, err := net.Dial("tcp", s.streams.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	check := func(name string, rcode int) {
		t.Helper()
		wire, err := query(name, dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		for _, conn := range []net.Conn{udp, tcp} {
			if m := exchangeOn(t, conn, wire); m.Rcode != rcode {
				t.Errorf("%s over %s: %s", name, conn.LocalAddr().Network(), dns.RcodeToString[m.Rcode])
			}
		}
	}
	check("old.example.com", dns.RcodeSuccess)
	check("new.example.com", dns.RcodeNameError)
	after := l.session(t, "s", "new.example.com")
	s.Swap(after)
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	check("old.example.com", dns.RcodeNameError)
	check("new.example.com", dns.RcodeSuccess)
}

// TestSwapUnderALookup closes a view while it waits for its upstream: the view
// that took its place answers.
func TestSwapUnderALookup(t *testing.T) {
	l := newLab(t, Config{})
	asked := make(chan struct{})
	release := make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	l.up.say(func(q *dns.Msg, _ string) [][]byte {
		once()
		<-release
		return say(q, "$ 60 IN A 203.0.113.10")
	})
	before := l.session(t, "s", "a.example.com")
	s := startServer(t, before)
	conn, err := net.Dial("udp", s.packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wire, err := query("a.example.com", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	framed := &dns.Conn{Conn: conn, UDPSize: 65535}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := framed.Write(wire); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody asked the upstream")
	}
	set := rules(t, nil, nil)
	after := l.Session("s", l.rulesOf(set))
	defer after.Close()
	s.Swap(after)
	before.Close()
	close(release)
	if m, err := framed.ReadMsg(); err != nil || m.Rcode != dns.RcodeNameError {
		t.Errorf("%v %v", m, err)
	}
}
