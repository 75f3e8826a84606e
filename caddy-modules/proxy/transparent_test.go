package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

func (b *lab) fakeName(a netip.Addr) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name, ok := b.fakes[a]
	return name, ok
}

func (b *lab) meantBy(c net.Conn) netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.meant[c.LocalAddr().String()]
}

// fake gives a name an address that stands for it.
func (b *lab) fake(name string) netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a, n := range b.fakes {
		if n == name {
			return a
		}
	}
	a := netip.AddrFrom4([4]byte{198, 18, 1, byte(len(b.fakes))})
	b.fakes[a] = name
	return a
}

// door opens a listener that takes its clients for such that connected to an
// address, and knows of no proxy.
func (b *lab) door(to netip.AddrPort) string {
	b.t.Helper()
	at := b.listen(b.srv.ServeTransparent)
	b.mu.Lock()
	b.meant[at] = to
	b.mu.Unlock()
	return at
}

// standsFor is a made-up address for the name of a target, with its port.
func (b *lab) standsFor(target string) netip.AddrPort {
	b.t.Helper()
	host, port, _ := net.SplitHostPort(target)
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		b.t.Fatal(err)
	}
	return netip.AddrPortFrom(b.fake(host), uint16(n))
}

// transparentTo connects to what stands for the name of the target.
func (b *lab) transparentTo(target string) *client {
	b.t.Helper()
	return b.connectTo(b.door(b.standsFor(target)))
}

// expectReset connects to an address and wants the connection broken, not ended.
func (b *lab) expectReset(to netip.AddrPort) {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.door(to))
	if err == nil {
		var got []byte
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if got, err = io.ReadAll(conn); len(got) > 0 {
			b.t.Errorf("got %q", got)
		}
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		b.t.Errorf("got %v, want a reset", err)
	}
}

// one gives the single decision there must be.
func (b *lab) one() Record {
	b.t.Helper()
	await(b.t, "a decision", func() bool { return len(b.kept(KindDecision)) > 0 })
	records := b.kept(KindDecision)
	if len(records) != 1 {
		b.t.Fatalf("%d decisions: %+v", len(records), records)
	}
	return records[0]
}

func TestTransparentAllowed(t *testing.T) {
	for _, port := range []string{"443", "22", "80"} {
		t.Run(port, func(t *testing.T) {
			sent, got := "SSH-2.0-x\r\n", "SSH-2.0-x\r\n"
			var o labOption = func(*lab) {}
			switch port {
			case "443":
				sent = buildHello(helloSpec{names: []string{"a.example"}})
				got = sent
			case "80":
				sent, got = get("/", "a.example"), okAnswer
				o = withOrigin(newOrigin(t, answering(okAnswer)))
			}
			b := newLab(t, []string{"a.example 443 22 80"}, o)
			c := b.transparentTo("a.example:" + port)
			c.send(sent)
			c.expect(got)
			r := b.one()
			want := "a.example:" + port
			if r.Proto != ProtoTransparent || r.Target.String() != want || !r.Allowed() || r.AskedFor != b.fake("a.example") {
				t.Errorf("%+v", r)
			}
			if r.Addr.Addr() != public {
				t.Errorf("connected to %s", r.Addr)
			}
			_ = c.CloseWrite()
			if r := b.awaitClose(); r.Proto != ProtoTransparent || r.Target.String() != want || r.AskedFor != b.fake("a.example") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A server that speaks first is heard before the client says anything.
func TestTransparentServerFirst(t *testing.T) {
	b := newLab(t, []string{"a.example 22"}, withOrigin(newOrigin(t, func(_ *origin, conn net.Conn) {
		_, _ = io.WriteString(conn, "SSH-2.0-server\r\n")
	})))
	b.transparentTo("a.example:22").expect("SSH-2.0-server\r\n")
}

func TestTransparentDenied(t *testing.T) {
	for _, port := range []string{"443", "22", "80", "TLS on 80"} {
		t.Run(port, func(t *testing.T) {
			number, asked := port, get("/x", "b.example")
			if port == "TLS on 80" {
				number, asked = "80", buildHello(helloSpec{names: []string{"b.example"}})
			}
			b := newLab(t, []string{"a.example"})
			switch port {
			case "443":
				b.transparentTo("b.example:443").expect(string(accessDenied))
			case "22":
				b.expectReset(b.standsFor("b.example:22"))
			case "80":
				c := b.transparentTo("b.example:80")
				c.send(asked)
				resp, body := c.response(http.MethodGet)
				if resp.StatusCode != http.StatusForbidden || resp.Header.Get(reasonField) != "not_allowed" || resp.Header.Get(decisionField) != "denied" {
					t.Errorf("%s %s", resp.Status, body)
				}
				c.expectEnd()
			default:
				c := b.transparentTo("b.example:80")
				c.send(asked)
				c.expect(string(accessDenied))
			}
			r := b.one()
			if r.Proto != ProtoTransparent || r.Allowed() || r.Code() != "not_allowed" || r.Target.String() != "b.example:"+number {
				t.Errorf("%+v", r)
			}
			if lookups, dials := b.touched(); len(lookups)+len(dials) > 0 {
				t.Errorf("looked up %v, dialled %v", lookups, dials)
			}
		})
	}
}

func TestTransparentUnreachable(t *testing.T) {
	for _, port := range []string{"443", "22", "80"} {
		b := newLab(t, []string{"a.example 22 80 443"})
		b.srv.Gate.SetDial(failWith(syscall.ECONNREFUSED))
		if port != "80" {
			b.expectReset(b.standsFor("a.example:" + port))
		} else {
			c := b.transparentTo("a.example:80")
			c.send(get("/", "a.example"))
			if resp, _ := c.response(http.MethodGet); resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s", resp.Status)
			}
		}
		if r := b.one(); !r.Allowed() || r.Target.String() != "a.example:"+port {
			t.Errorf("%+v", r)
		}
	}
}

// What stands for no name of this session is refused, whatever the lists say.
func TestTransparentUnknownAddress(t *testing.T) {
	for _, to := range []string{"198.18.9.9:443", "[fd00:706f:7374::99]:22", "127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:443", "93.184.216.34:443"} {
		b := newLab(t, []string{"a.example", "93.184.216.34", "127.0.0.0/8 private"})
		b.fakes[netip.MustParseAddr("127.0.0.1")] = "a.example" // even so
		b.expectReset(netip.MustParseAddrPort(to))
		if r := b.one(); r.Allowed() || r.Decision.Code != policy.FakeUnknown || r.Proto != ProtoTransparent {
			t.Errorf("%s: %+v", to, r)
		}
		if lookups, dials := b.touched(); len(lookups)+len(dials) > 0 {
			t.Errorf("%s: looked up %v, dialled %v", to, lookups, dials)
		}
	}
}

func TestTransparentForeignSNI(t *testing.T) {
	b := newLab(t, []string{"a.example", "b.example"})
	c := b.transparentTo("a.example:443")
	c.send(buildHello(helloSpec{names: []string{"b.example"}}))
	c.expect(string(accessDenied))
	c.expectEnd()
	if r := b.one(); r.Allowed() || r.Code() != "sni_mismatch" || r.SNI != "b.example" {
		t.Errorf("%+v", r)
	}
	if got := b.origin.received(); got != "" {
		t.Errorf("the origin got %q", got)
	}
}

// localEcho answers git.internal:80 in process.
func localEcho(t *testing.T) func(policy.Target) (func(context.Context) (net.Conn, error), bool) {
	t.Helper()
	return func(to policy.Target) (func(context.Context) (net.Conn, error), bool) {
		return func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer func() { _ = far.Close() }()
				_, _ = io.Copy(far, far)
			}()
			return near, nil
		}, to.String() == "git.internal:80"
	}
}

// A name that is answered in process has an address like any other.
func TestTransparentLocal(t *testing.T) {
	local := localEcho(t)
	b := newLab(t, nil, func(b *lab) { b.srv.Local = local })
	c := b.transparentTo("git.internal:80")
	c.send("hello")
	c.expect("hello")
	if r := b.one(); !r.Local || !r.Allowed() || r.Target.String() != "git.internal:80" {
		t.Errorf("%+v", r)
	}
}

// Clients that look a name up themselves give the made-up address to the proxy.
func TestFakeLiteralsAreNames(t *testing.T) {
	for _, c := range []struct {
		door  string
		proto Proto
	}{{"connect", ProtoConnect}, {"http", ProtoHTTP}, {"socks", ProtoSOCKS5}} {
		for _, name := range []string{"a.example", "b.example", ""} {
			t.Run(c.door+" "+name, func(t *testing.T) {
				b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, answering(okAnswer))))
				addr := netip.MustParseAddr("198.18.77.77")
				if name != "" {
					addr = b.fake(name)
				}
				allowed := name == "a.example"
				request := "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
				var conn *client
				switch c.door {
				case "connect":
					conn = b.connectTo(b.http)
					conn.send(connectTo(addr.String() + ":80"))
					if resp, _ := conn.response(http.MethodConnect); (resp.StatusCode == http.StatusOK) != allowed {
						t.Fatal(resp.Status)
					}
				case "http":
					conn = b.connectTo(b.http)
					request = get("http://"+addr.String()+"/", addr.String())
				default:
					conn = b.connectTo(b.socks)
					conn.send(noAuth)
					conn.expect("\x05\x00")
					a := addr.As4()
					conn.send("\x05\x01\x00\x01" + string(a[:]) + "\x00\x50")
					reply := byte(replySucceeded)
					if !allowed {
						reply = replyDenied
					}
					conn.expect(string(socksReply(reply)))
				}
				if allowed || c.door == "http" {
					conn.send(request)
					if resp, body := conn.response(http.MethodGet); (resp.StatusCode == http.StatusOK) != allowed {
						t.Fatal(resp.Status, body)
					}
				}
				r := b.one()
				want := name
				if name == "" {
					want = addr.String()
				}
				if r.Target.Host().String() != want || r.Proto != c.proto || r.Allowed() != allowed || !allowed && r.Code() != "not_allowed" {
					t.Errorf("%s %s %+v", r.Code(), r.Target, r)
				}
				if r.AskedFor.IsValid() != (name != "") {
					t.Errorf("asked for %s", r.AskedFor)
				}
				if allowed && !bytes.Contains([]byte(b.origin.received()), []byte("Host: a.example\r\n")) {
					t.Errorf("the origin got %q", b.origin.received())
				}
			})
		}
	}
}

// One that stands for no name any more is refused in the same words by every door, even
// where a rule opens its range.
func TestStaleFakes(t *testing.T) {
	for _, door := range []Proto{ProtoConnect, ProtoHTTP, ProtoSOCKS5, ProtoTransparent} {
		t.Run(string(door), func(t *testing.T) {
			stale := netip.MustParseAddrPort("198.18.7.7:80")
			b := newLab(t, []string{"198.18.0.0/15 80", "a.example"}, func(b *lab) {
				b.srv.Made = func(a netip.Addr) bool { return a.As4()[0] == 198 }
			})
			switch door {
			case ProtoConnect:
				conn := b.connectTo(b.http)
				conn.send(connectTo(stale.String()))
				if resp, body := conn.response(http.MethodConnect); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "look the name up again") {
					t.Errorf("%s %s", resp.Status, body)
				}
			case ProtoHTTP:
				conn := b.connectTo(b.http)
				conn.send(get("http://"+stale.String()+"/", stale.String()))
				if resp, body := conn.response(http.MethodGet); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "look the name up again") {
					t.Errorf("%s %s", resp.Status, body)
				}
			case ProtoSOCKS5:
				conn := b.connectTo(b.socks)
				a := stale.Addr().As4()
				conn.send(noAuth + "\x05\x01\x00\x01" + string(a[:]) + "\x00\x50")
				conn.expect("\x05\x00" + string(socksReply(replyDenied)))
			default:
				b.expectReset(stale)
			}
			if r := b.one(); r.Allowed() || r.Code() != "fake_unknown" || r.Proto != door || r.Target.String() != stale.String() {
				t.Errorf("%s %+v", r.Code(), r)
			}
			if _, dials := b.touched(); len(dials) > 0 {
				t.Errorf("dialled %v", dials)
			}
		})
	}
}

func FuzzTransparent(f *testing.F) {
	for _, port := range []uint16{80, 443, 22, 0} {
		for _, allowed := range []bool{true, false} {
			f.Add(port, allowed, []byte(get("/", "a.example")))
			f.Add(port, allowed, []byte(buildHello(helloSpec{names: []string{"a.example"}})))
			f.Add(port, allowed, []byte(buildHello(helloSpec{names: []string{"b.example"}})))
			f.Add(port, allowed, []byte("SSH-2.0-x\r\n"))
			f.Add(port, allowed, []byte("POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 3\r\n\r\nabc"))
			f.Add(port, allowed, []byte{recordHandshake, recordVersion})
		}
	}
	b := newLab(f, []string{"a.example 80 443 22"}, withOrigin(newOrigin(f, scripted(okAnswer, nil))))
	var wrong atomic.Int64
	b.srv.Gate.SetDial(func(ctx context.Context, t policy.Target, a netip.Addr) (*net.TCPConn, error) {
		if t.Host().String() != "a.example" {
			wrong.Add(1)
		}
		return b.dial(ctx, t, a)
	})
	at := map[string]string{}
	for _, host := range []string{"a.example", "b.example"} {
		for _, port := range []uint16{80, 443, 22, 0} {
			ln := b.listen(b.srv.ServeTransparent)
			b.mu.Lock()
			a := netip.AddrFrom4([4]byte{198, 18, 2, host[0]})
			b.fakes[a] = host
			b.meant[ln] = netip.AddrPortFrom(a, port)
			b.mu.Unlock()
			at[fmt.Sprint(host, port)] = ln
		}
	}
	f.Fuzz(func(t *testing.T, port uint16, allowed bool, sent []byte) {
		host := "b.example"
		if allowed {
			host = "a.example"
		}
		addr, ok := at[fmt.Sprint(host, port)]
		if !ok {
			return
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return // reset at once
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		if n := wrong.Load(); n > 0 {
			t.Fatalf("%d dials of a denied host", n)
		}
	})
}
