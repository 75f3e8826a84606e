//go:build linux

package netlab

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// echo listens on a port of all addresses and gives back what it gets.
func echo(t *testing.T, network, addr string) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

func TestEveryAddressIsLocal(t *testing.T) {
	Run(t, func(lab *Lab) {
		echo(t, "tcp4", "0.0.0.0:443")
		targets := []string{"93.184.216.34:443", "10.0.0.5:443", "169.254.169.254:443", "8.8.8.8:443", "127.0.0.1:443", "192.168.77.2:443"}
		if lab.IPv6 {
			echo(t, "tcp6", "[::]:443")
			targets = append(targets, "[2606:2800:220:1::1]:443", "[fd00:ec2::254]:443", "[::1]:443", "[64:ff9b::a9fe:a9fe]:443")
		}
		for _, target := range targets {
			c, err := net.DialTimeout("tcp", target, 2*time.Second)
			if err != nil {
				t.Errorf("dial: %v", err)
				continue
			}
			if got := c.RemoteAddr().String(); got != target {
				t.Errorf("reached %s, want %s", got, target)
			}
			if _, err := c.Write([]byte("hi")); err != nil {
				t.Error(err)
			}
			buf := make([]byte, 2)
			if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hi" {
				t.Errorf("%s: %q, %v", target, buf, err)
			}
			c.Close()
		}
	})
}

func TestLANAddressIsAnInterfaces(t *testing.T) {
	Run(t, func(*Lab) {
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(addrs, func(a net.Addr) bool { return a.String() == LAN.String()+"/32" }) {
			t.Errorf("addresses: %v", addrs)
		}
	})
}

func TestNothingOutlivesTheLab(t *testing.T) {
	if Inside() {
		// The child holds our standard output, a pipe that the test outside
		// reads to its end.
		cmd := exec.Command("sleep", "600")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return // and the namespace's first process ends
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	code, err := Rerun([]string{"-test.run=^TestNothingOutlivesTheLab$"}, nil, w, io.Discard)
	w.Close()
	if err != nil || code != 0 {
		t.Fatalf("exit status %d, %v", code, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case <-done: // end of file: nobody has the write end any more
	case <-time.After(5 * time.Second):
		t.Error("the child is still there")
	}
}

func TestExitStatusAndErrorsComeOut(t *testing.T) {
	if Inside() {
		os.Exit(7)
	}
	code, err := Rerun([]string{"-test.run=^TestExitStatusAndErrorsComeOut$"}, nil, io.Discard, io.Discard)
	if code != 7 || err != nil {
		t.Errorf("exit status %d, %v", code, err)
	}
	rec := &recordT{}
	func() {
		defer func() { _ = recover() }()
		Run(rec, nil)
	}()
	if !strings.Contains(rec.fatal, "exit status 7") {
		t.Errorf("Run said %q", rec.fatal)
	}
}

// recordT stands for a test that fails.
type recordT struct{ fatal string }

func (r *recordT) Helper()             {}
func (r *recordT) Name() string        { return "TestExitStatusAndErrorsComeOut" }
func (r *recordT) Logf(string, ...any) {}
func (r *recordT) Fatalf(f string, args ...any) {
	for _, a := range args {
		if n, ok := a.(int); ok && n == 7 {
			r.fatal = "exit status 7"
		}
	}
	panic(f)
}

func TestUnavailableIsSaid(t *testing.T) {
	Run(t, func(*Lab) {
		// One level down, with the limit at zero, the kernel says no.
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0\n"), 0); err != nil {
			t.Skipf("cannot set the limit here: %v", err)
		}
		if err := os.WriteFile("/proc/sys/user/max_net_namespaces", []byte("0\n"), 0); err != nil {
			t.Skipf("cannot set the limit here: %v", err)
		}
		_, err := Rerun(nil, nil, io.Discard, io.Discard)
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "max_user_namespaces is 0") {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatchSeesDials(t *testing.T) {
	Run(t, func(lab *Lab) {
		w, err := lab.Watch()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		echo(t, "tcp4", "0.0.0.0:443")
		c, err := net.Dial("tcp", "1.2.3.4:443")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("data is no dial")); err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("tcp", "5.6.7.8:81"); err == nil { // nobody there
			c.Close()
			t.Error("port 81 answered")
		}
		u, err := net.Dial("udp", "9.9.9.9:53")
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		_, _ = u.Write([]byte("x"))
		want := []string{"tcp 1.2.3.4:443", "tcp 5.6.7.8:81", "udp 9.9.9.9:53"}
		if lab.IPv6 {
			if c, err := net.Dial("tcp", "[2001:db8::1]:82"); err == nil {
				c.Close()
			}
			want = append(want, "tcp [2001:db8::1]:82")
		}
		dials, err := w.Dials()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range dials {
			got = append(got, d.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("saw %q, want %q", got, want)
		}
		if dials[0].Src != c.LocalAddr().(*net.TCPAddr).AddrPort() {
			t.Errorf("source %v, want %v", dials[0].Src, c.LocalAddr())
		}
		if err := w.Forget(); err != nil {
			t.Fatal(err)
		}
		if dials, err := w.Dials(); err != nil || len(dials) != 0 {
			t.Errorf("after Forget: %v, %v", dials, err)
		}
	})
}

func TestParsePacketTakesOnlyWholePackets(t *testing.T) {
	syn := append([]byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, make([]byte, 20)...)
	syn[20+13] = 2
	if d, _, ok := parsePacket(syn); !ok || d.Dst.Addr() != netip.MustParseAddr("5.6.7.8") {
		t.Errorf("SYN: %v %v", d, ok)
	}
	synAck := slices.Clone(syn)
	synAck[20+13] = 18
	fragment := slices.Clone(syn)
	fragment[7] = 1
	options := slices.Clone(syn)
	options[0] = 0x4f // a head of 60 bytes does not fit
	for name, p := range map[string][]byte{"empty": nil, "short": syn[:19], "cut": syn[:30], "answer": synAck, "fragment": fragment, "long head": options, "IPv5": {0x50}} {
		if d, _, ok := parsePacket(p); ok {
			t.Errorf("%s: taken as %v", name, d)
		}
	}
}

func TestDNS(t *testing.T) {
	d, err := ListenDNSPort(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.Set("api.example.com", Addrs("93.184.216.34", "2606:2800:220:1::1"), Addrs("127.0.0.1"))
	d.Set("alias.example.com", Answer{CNAME: "real.example.com", Addrs: Addrs("1.2.3.4").Addrs, TTL: 7})
	d.Set("stray.example.com", Answer{Owner: "other.example", Addrs: Addrs("1.2.3.4").Addrs})
	d.Set("silent.example.com", Answer{Drop: true})
	d.Set("broken.example.com", Answer{Rcode: dns.RcodeServerFailure})
	ask := func(network, name string, kind uint16) (*dns.Msg, error) {
		c := dns.Client{Net: network, Timeout: 500 * time.Millisecond}
		m := new(dns.Msg)
		m.SetQuestion(name, kind)
		r, _, err := c.ExchangeContext(context.Background(), m, d.Addr().String())
		return r, err
	}
	text := func(m *dns.Msg, err error) string {
		if err != nil {
			return "error"
		}
		out := dns.RcodeToString[m.Rcode]
		for _, rr := range m.Answer {
			out += " " + strings.Join(strings.Fields(rr.String()), " ")
		}
		return out
	}
	for i, want := range []struct {
		network, name string
		kind          uint16
		answer        string
	}{
		{"udp", "API.example.com.", dns.TypeA, "NOERROR API.example.com. 0 IN A 93.184.216.34"},
		{"udp", "api.example.com.", dns.TypeAAAA, "NOERROR api.example.com. 0 IN AAAA 2606:2800:220:1::1"},
		{"tcp", "api.example.com.", dns.TypeA, "NOERROR api.example.com. 0 IN A 127.0.0.1"},
		{"udp", "api.example.com.", dns.TypeA, "NOERROR api.example.com. 0 IN A 127.0.0.1"},
		{"udp", "api.example.com.", dns.TypeAAAA, "NOERROR"},
		{"udp", "alias.example.com.", dns.TypeA, "NOERROR alias.example.com. 7 IN CNAME real.example.com. real.example.com. 7 IN A 1.2.3.4"},
		{"udp", "stray.example.com.", dns.TypeA, "NOERROR other.example. 0 IN A 1.2.3.4"},
		{"udp", "other.example.com.", dns.TypeA, "NXDOMAIN"},
		{"udp", "broken.example.com.", dns.TypeA, "SERVFAIL"},
		{"udp", "silent.example.com.", dns.TypeA, "error"},
	} {
		if got := text(ask(want.network, want.name, want.kind)); got != want.answer {
			t.Errorf("%d: %q, want %q", i, got, want.answer)
		}
	}
	log := d.Queries()
	if len(log) != 10 || log[0] != (Query{Name: "api.example.com.", Type: dns.TypeA}) || !log[2].TCP {
		t.Errorf("log: %v", log)
	}
	d.Forget()
	d.Set("api.example.com")
	d.SetDefault(func(string) Answer { return Addrs("5.6.7.8") })
	if got := text(ask("udp", "api.example.com.", dns.TypeA)); got != "NOERROR api.example.com. 0 IN A 5.6.7.8" || len(d.Queries()) != 1 {
		t.Errorf("default: %q, log %v", got, d.Queries())
	}
}
