package session

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
	"postern/dnsguard"
)

// dnsSockets makes the sockets that a launcher lends for DNS, here on loopback.
func dnsSockets(t *testing.T) (udp, tcp lease.Lent) {
	t.Helper()
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close(); ln.Close() })
	port := func(a net.Addr) uint16 { return netip.MustParseAddrPort(a.String()).Port() }
	return lease.Lent{Socket: lease.Socket{Use: lease.UseDNS, Network: lease.SocketUDP, Port: port(pc.LocalAddr())}, Packets: pc},
		lease.Lent{Socket: lease.Socket{Use: lease.UseDNS, Network: lease.SocketTCP, Port: port(ln.Addr())}, Listener: ln}
}

// query asks a stub server and returns the answer's code and addresses.
func query(t *testing.T, network string, at net.Addr, name string) (rcode string, addrs []string) {
	t.Helper()
	reply, _, err := (&dns.Client{Net: network, Timeout: patience}).Exchange(new(dns.Msg).SetQuestion(name+".", dns.TypeA), at.String())
	if err != nil {
		t.Fatalf("ask for %s over %s: %v", name, network, err)
	}
	for _, rr := range reply.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			addrs = append(addrs, rr.A.String())
		case *dns.AAAA:
			addrs = append(addrs, rr.AAAA.String())
		}
	}
	return dns.RcodeToString[reply.Rcode], addrs
}

// Lent sockets are served by the rules of the session and from what it knows already,
// over a reload, until its end; refusals are told as those of the proxies are.
func TestStubServer(t *testing.T) {
	r, z, store := newRegistry(t), newZone(t), new(dnsguard.Store)
	conf := dnsguard.Config{Upstreams: []string{z.addr}, Store: store, Record: r.Judged}
	var events sink
	first := guardedBy(t, r, conf, "a.example")
	first.Emit = events.add
	r.Push(first)
	path := openDoors(t, r)
	udp, tcp := dnsSockets(t)
	c := t.Context()
	l, err := lease.Lend(c, path, lease.Hello{Spec: lease.Spec{ID: "run"}}, pair(t), udp, tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Answer().DNS != lease.DNSAnswer || l.Answer().Session.DNS != lease.DNSAnswer {
		t.Errorf("dns is %q: nothing transparent was lent", l.Answer().DNS)
	}
	for _, network := range []string{"udp", "tcp"} {
		at := udp.Packets.LocalAddr()
		if network == "tcp" {
			at = tcp.Listener.Addr()
		}
		if rcode, addrs := query(t, network, at, "a.example"); rcode != "NOERROR" || len(addrs) != 1 || addrs[0] != "9.9.9.1" {
			t.Errorf("%s: %s %v", network, rcode, addrs)
		}
		if rcode, addrs := query(t, network, at, "b.example"); rcode != "NXDOMAIN" || addrs != nil {
			t.Errorf("%s: %s %v for a name that no rule allows", network, rcode, addrs)
		}
	}
	if got := named(t, r, "run", "a.example"); got != "[9.9.9.1]" {
		t.Errorf("the proxies got %s", got)
	}
	if n := z.count("b.example"); n != 0 {
		t.Errorf("upstream was asked %d times for a name that no rule allows", n)
	}
	eventually(t, "the event", func() bool { return len(events.of(lease.EventDenied)) > 0 })
	if e := events.of(lease.EventDenied)[0]; e.Text("target") != "b.example" || e.Text("proto") != "dns" || e.Text("code") != "not_allowed" {
		t.Errorf("the event is %v", e.Fields)
	}
	info, _ := r.Lookup("run")
	if info.Denied == 0 {
		t.Error("the refusal was not counted")
	}

	next := guardedBy(t, r, conf, "a.example", "b.example")
	r.Push(next)
	r.Drop(first)
	if rcode, addrs := query(t, "udp", udp.Packets.LocalAddr(), "b.example"); rcode != "NOERROR" || len(addrs) != 1 {
		t.Errorf("after a reload: %s %v", rcode, addrs)
	}
	if rcode, addrs := query(t, "udp", udp.Packets.LocalAddr(), "a.example"); rcode != "NOERROR" || len(addrs) != 1 || addrs[0] != "9.9.9.1" {
		t.Errorf("after a reload: %s %v", rcode, addrs)
	}
	l.Close()
	eventually(t, "the end", func() bool { _, there := r.Lookup("run"); return !there })
	// The launcher's socket is all that is left.
	if err := tcp.Listener.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", tcp.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := tcp.Listener.Accept(); err != nil {
		t.Errorf("somebody else accepts: %v", err)
	} else {
		got.Close()
	}
}

// With transparent sockets names are answered with addresses that stand for them, in
// each session with its own, unless the configuration says otherwise.
func TestStubModes(t *testing.T) {
	for _, c := range []struct {
		name        string
		stub        Stub
		transparent bool
		want        string
	}{
		{"fake", StubFake, true, lease.DNSFake},
		{"fake without listeners", StubFake, false, lease.DNSAnswer},
		{"answer", StubAnswer, true, lease.DNSAnswer},
		{"off", StubOff, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, z := newRegistry(t), newZone(t)
			g := guardedBy(t, r, dnsguard.Config{Upstreams: []string{z.addr}, LocalHosts: []string{"git.internal"}}, "a.example")
			g.Stub = c.stub
			r.Push(g)
			udp, tcp := dnsSockets(t)
			more := []lease.Lent{udp}
			if c.transparent {
				tcp.Use = lease.UseTransparent // the door would not let it in here
				more = append(more, tcp)
			}
			p := newPair(t)
			s, err := r.open(t.Context(), order{kind: kindLease, spec: lease.Spec{ID: "run"}, owner: os.Geteuid(), pair: &p, more: more})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.answer().DNS; got != c.want {
				t.Fatalf("dns is %q, want %q", got, c.want)
			}
			switch c.want {
			case lease.DNSFake:
				_, addrs := query(t, "udp", udp.Packets.LocalAddr(), "a.example")
				if len(addrs) != 1 || !dnsguard.IsFake(netip.MustParseAddr(addrs[0])) || z.count("a.example") != 0 {
					t.Fatalf("answered with %v", addrs)
				}
				if name, ok := s.names.view.Load().FakeName(netip.MustParseAddr(addrs[0])); !ok || name != "a.example" {
					t.Errorf("%s stands for %q", addrs[0], name)
				}
				// A client that looks up and then uses the proxy means the name.
				tun := connect(t, "tcp", s.answer().Session.HTTP, net.JoinHostPort(addrs[0], "8443"))
				if tun.reason != "port_not_allowed" || !strings.Contains(tun.body, "a.example") {
					t.Errorf("a made-up address over the proxy: %d %s %s", tun.status, tun.reason, tun.body)
				}
				if tun = connect(t, "tcp", s.answer().Session.HTTP, "198.19.255.254:443"); tun.reason != "fake_unknown" {
					t.Errorf("one that stands for nothing: %d %s", tun.status, tun.reason)
				}
				// What was connected to is no made-up address: nobody is behind it.
				events := r.hub.subscribe("run", 16)
				defer events.cancel()
				plain, err := net.Dial("tcp", tcp.Listener.Addr().String())
				if err == nil { // it may have been reset by now
					defer plain.Close()
					_ = plain.SetDeadline(time.Now().Add(patience))
					_, err = plain.Read(make([]byte, 1))
				}
				if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a transparent connection to %s: %v", tcp.Listener.Addr(), err)
				}
				var told atomic.Bool
				defer time.AfterFunc(patience, events.cancel).Stop()
				_ = events.each(nil, func(e lease.Event) error {
					if e.Type == lease.EventDenied && e.Text("code") == "fake_unknown" && e.Text("proto") == "transparent" {
						told.Store(true)
						events.cancel()
					}
					return nil
				})
				if !told.Load() {
					t.Error("nobody was told")
				}
				if rcode, addrs := query(t, "udp", udp.Packets.LocalAddr(), "git.internal"); len(addrs) != 1 {
					t.Errorf("the forge's door: %s %v", rcode, addrs)
				}
			case lease.DNSAnswer:
				if _, addrs := query(t, "udp", udp.Packets.LocalAddr(), "a.example"); len(addrs) != 1 || addrs[0] != "9.9.9.1" {
					t.Errorf("answered with %v", addrs)
				}
				// That address counts as the name, and no other does.
				if tun := connect(t, "tcp", s.answer().Session.HTTP, "9.9.9.1:8443"); tun.reason != "port_not_allowed" || !strings.Contains(tun.body, "a.example") {
					t.Errorf("an address that was answered with: %d %s %s", tun.status, tun.reason, tun.body)
				}
				if tun := connect(t, "tcp", s.answer().Session.HTTP, "9.9.9.8:443"); tun.reason != "not_allowed" {
					t.Errorf("another address: %d %s", tun.status, tun.reason)
				}
			default:
				if err := udp.Packets.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a socket that is not served is open: %v", err)
				}
			}
		})
	}
}

// What a stub server refuses has the code that the proxies give it.
func TestStubRefusalsHaveTheProxiesCodes(t *testing.T) {
	r, z := newRegistry(t), newZone(t)
	g := guardedBy(t, r, dnsguard.Config{Upstreams: []string{z.addr}, WildcardNames: 1, Record: r.Judged}, "*.w.example", "dns.google")
	r.Push(g)
	udp, _ := dnsSockets(t)
	p := newPair(t)
	s, err := r.open(t.Context(), order{kind: kindLease, spec: lease.Spec{ID: "run"}, owner: os.Geteuid(), pair: &p, more: []lease.Lent{udp}})
	if err != nil {
		t.Fatal(err)
	}
	events := r.hub.subscribe("run", 64)
	defer events.cancel()
	defer time.AfterFunc(patience, events.cancel).Stop()
	at := udp.Packets.LocalAddr()
	query(t, "udp", at, "one.w.example")
	for _, name := range []string{"two.w.example", "dns.google", "b.example"} {
		query(t, "udp", at, name)
		code := ""
		_ = events.each(nil, func(e lease.Event) error {
			if e.Type == lease.EventDenied && e.Text("target") == name {
				code = e.Text("code")
				return errors.New("found")
			}
			return nil
		})
		tun := connect(t, "tcp", s.answer().Session.HTTP, name+":443")
		if tun.reason != code || code == "" {
			t.Errorf("%s: %q by name, %q by CONNECT", name, code, tun.reason)
		}
	}
}

// The address that a name was answered with counts as the name where the policy opens
// the name on whatever port and in whatever scheme, or lets an approver open it; and
// what a rule says of the address itself goes before that.
func TestAddressMeansItsName(t *testing.T) {
	for name, c := range map[string]struct {
		first, then policy.Lists
		means       bool
	}{
		"allowed":               {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{Allow: rules(t, "a.example")}, true},
		"on another port":       {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{Allow: rules(t, "a.example 8443")}, true},
		"in plain HTTP":         {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{Allow: rules(t, "a.example http")}, true},
		"in TLS":                {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{Allow: rules(t, "a.example https")}, true},
		"asked about":           {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{Ask: rules(t, "a.example 22")}, true},
		"all are asked about":   {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{AskAny: true}, true},
		"and the address":       {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{AskAny: true, Allow: rules(t, "a.example")}, true},
		"no more":               {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{Allow: rules(t, "b.example")}, false},
		"denied":                {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{AskAny: true, Deny: rules(t, "a.example")}, false},
		"the address is denied": {policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{Allow: rules(t, "a.example"), Deny: rules(t, "9.9.9.1")}, false},
		"the address is asked about": {
			policy.Lists{Allow: rules(t, "a.example")}, policy.Lists{Allow: rules(t, "a.example"), Ask: rules(t, "9.9.9.1")}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, z := newRegistry(t), newZone(t)
			store := new(dnsguard.Store)
			push := func(lists policy.Lists) {
				t.Helper()
				g := guardedBy(t, r, dnsguard.Config{Upstreams: []string{z.addr}, Store: store})
				g.Stub = StubAnswer
				set, err := policy.Compile(lists, r.Own)
				if err != nil {
					t.Fatal(err)
				}
				g.Policies["agent"] = set
				r.Push(g)
			}
			push(c.first)
			udp, _ := dnsSockets(t)
			p := newPair(t)
			s, err := r.open(t.Context(), order{kind: kindLease, spec: lease.Spec{ID: "run"}, owner: os.Geteuid(), pair: &p, more: []lease.Lent{udp}})
			if err != nil {
				t.Fatal(err)
			}
			_, addrs := query(t, "udp", udp.Packets.LocalAddr(), "a.example")
			if len(addrs) != 1 {
				t.Fatalf("answered with %v", addrs)
			}
			push(c.then)
			got, ok := s.nameOf(netip.MustParseAddr(addrs[0]))
			if ok != c.means || ok && got != "a.example" {
				t.Errorf("%s means %q, %v", addrs[0], got, ok)
			}
		})
	}
}
