package sandbox

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lowPorts are those of a resolver and a transparent proxy.
func lowPorts() []LowPort {
	at := netip.MustParseAddrPort
	return []LowPort{
		{"udp", at("127.0.0.1:53")},
		{"tcp", at("127.0.0.1:53")},
		{"tcp", at("0.0.0.0:80")},
		{"tcp", at("[::1]:443")},
	}
}

// serveLow answers whatever comes with the address that the caller listens at.
func serveLow(t *testing.T, sockets []LowSocket) {
	t.Helper()
	var wg sync.WaitGroup
	for _, s := range sockets {
		wg.Go(func() {
			buf := make([]byte, 100)
			for s.Packets != nil {
				_, from, err := s.Packets.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = s.Packets.WriteTo([]byte("udp "+s.Addr.String()), from)
			}
			for {
				c, err := s.Listener.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "tcp "+s.Addr.String()+" as "+c.LocalAddr().String()+"\n")
				_ = c.Close()
			}
		})
	}
	t.Cleanup(func() {
		for i := range sockets {
			_ = sockets[i].Close()
		}
		wg.Wait()
	})
}

// Ports below 1024 listen inside, are served outside, and the command has no
// capability for it; exit status and signals are what they are without.
func TestLowPorts(t *testing.T) {
	needBwrap(t)
	stdout := capture(t)
	o := Options{Stdin: devNull(t), Stdout: stdout, Stderr: stdout, Timeout: 30 * time.Second, Low: lowPorts()}
	p, err := Start(t.Context(), gather(t, newWorld(t).profile()), o)
	must(t, err)
	t.Cleanup(p.Close)
	low, err := p.Low()
	must(t, err)
	if len(low) != len(o.Low) {
		t.Fatalf("%d sockets, want %d", len(low), len(o.Low))
	}
	serveLow(t, low)
	execute(t, p, "/bin/bash", "-c", `
		exec 3<>/dev/udp/127.0.0.1/53; printf x >&3; head -c 16 <&3; echo
		for at in 127.0.0.1/53 127.0.0.1/80 127.0.0.2/80 ::1/443; do cat < /dev/tcp/$at; done
		grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | sort -u -k2
		exec 3<&-; `+InnerExe+" "+attackCommand+` serve 127.0.0.1:81
		trap 'exit 9' TERM; kill -TERM $$; exit 1`)
	status, err := p.Wait()
	must(t, err)
	if status.Code != 9 {
		t.Errorf("status %+v, want 9", status)
	}
	want := strings.Join([]string{
		"udp 127.0.0.1:53",
		"tcp 127.0.0.1:53 as 127.0.0.1:53",
		"tcp 0.0.0.0:80 as 127.0.0.1:80",
		"tcp 0.0.0.0:80 as 127.0.0.2:80",
		"tcp [::1]:443 as [::1]:443",
		"CapInh:\t0000000000000000",
		"EACCES", "",
	}, "\n")
	if got := slurp(t, stdout); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Where a security module keeps them from the launcher, or they cannot be had, the
// sandbox stands without any, and says why.
func TestLowPortsRefused(t *testing.T) {
	needBwrap(t)
	for _, tc := range []struct {
		name   string
		denied error
		low    []LowPort
		says   []string
	}{
		{"a security module", unix.EACCES, lowPorts(), []string{"udp port 127.0.0.1:53", "permission denied", "AppArmor"}},
		{"one port twice", nil, append(lowPorts(), lowPorts()[1]), []string{"address already in use"}},
		{"the run's own proxy", nil, []LowPort{{"tcp", netip.MustParseAddrPort("127.0.0.1:3128")}}, []string{"address already in use"}},
		{"an address that is nowhere", nil, []LowPort{{"tcp", netip.MustParseAddrPort("192.0.2.1:80")}}, []string{"192.0.2.1:80"}},
		{"a network of another kind", nil, []LowPort{{"unix", netip.MustParseAddrPort("127.0.0.1:80")}}, []string{"tcp or udp"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout := capture(t)
			o := Options{Stdin: devNull(t), Stdout: stdout, Stderr: capture(t), Timeout: 30 * time.Second, Low: tc.low, lowDenied: tc.denied}
			p, err := Start(t.Context(), gather(t, newWorld(t).profile()), o)
			must(t, err)
			t.Cleanup(p.Close)
			low, err := p.Low()
			refusal(t, err, ReasonLowPorts)
			for _, text := range tc.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not say %q", err, text)
				}
			}
			if len(low) > 0 {
				t.Errorf("and yet there are %d", len(low))
			}
			execute(t, p, "/bin/bash", "-c", "(: < /dev/tcp/127.0.0.1/53) 2>/dev/null && echo listens; echo ran")
			if _, err := p.Wait(); err != nil || slurp(t, stdout) != "ran\n" {
				t.Errorf("the run: %v, %q", err, slurp(t, stdout))
			}
		})
	}
}

// A run that asked for none has none, and its loopback is plain.
func TestNoLowPorts(t *testing.T) {
	p, stdout := standing(t)
	if low, err := p.Low(); len(low) > 0 || err != nil {
		t.Errorf("got %v, %v", low, err)
	}
	execute(t, p, "/bin/sh", "-c", "grep -c '/32 host LOCAL' /proc/net/fib_trie")
	_, err := p.Wait()
	must(t, err)
	if got := slurp(t, stdout); got != "2\n" { // 127.0.0.1, in two tables
		t.Errorf("got %q addresses", got)
	}
}

// Sockets that were open close with the sandbox.
func TestLowPortsEndWithTheSandbox(t *testing.T) {
	needBwrap(t)
	p, err := Start(t.Context(), gather(t, newWorld(t).profile()), Options{Stdin: devNull(t), Stdout: capture(t), Stderr: capture(t), Timeout: 30 * time.Second, Low: lowPorts()})
	must(t, err)
	low, err := p.Low()
	must(t, err)
	p.Close()
	for _, s := range low {
		if err := s.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s %s: %v", s.Network, s.Addr, err)
		}
	}
}
