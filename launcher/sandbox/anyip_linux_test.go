package sandbox

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// insideWith puts up a sandbox with the sockets of a mode, serves them, runs a script, and
// returns what it printed.
func insideWith(t *testing.T, o Options, script string) (string, []LowSocket) {
	t.Helper()
	needBwrap(t)
	stdout := capture(t)
	o.Stdin, o.Stdout, o.Stderr, o.Timeout = devNull(t), stdout, stdout, 30*time.Second
	p, err := Start(t.Context(), gather(t, newWorld(t).profile()), o)
	must(t, err)
	t.Cleanup(p.Close)
	low, err := p.Low()
	must(t, err)
	serveLow(t, low)
	execute(t, p, "/bin/bash", "-c", script)
	_, err = p.Wait()
	must(t, err)
	return slurp(t, stdout), low
}

// Every address of the ranges is the sandbox's own, and whoever accepts a connection to
// one is told which.
func TestAnyIP(t *testing.T) {
	got, low := insideWith(t, Options{Low: DNSSockets(DNSFake), Any: true}, `
		exec 3<>/dev/udp/127.0.0.1/53; printf x >&3; head -c 16 <&3; echo
		for at in 127.0.0.1/53 198.18.0.1/443 198.19.7.7/443 198.19.255.254/80 198.18.3.4/22 127.0.0.2/80 fd00:706f:7374::77/443 fd00:706f:7374:0:ffff::1/22 ::1/80; do
			cat < /dev/tcp/$at
		done
		for at in 198.19.7.7/444 fd00:706f:7374::77/81; do (: < /dev/tcp/$at) 2>&1 | tail -1 | sed 's/.*: //'; done
		for at in 192.0.2.1/443 198.20.0.1/443 198.17.255.255/443 fd00:706f:7375::1/443; do (: < /dev/tcp/$at) 2>&1 | tail -1 | sed 's/.*: //'; done
		getent ahostsv4 localhost | grep -c 127.0.0.1
		grep -o '^fd00[0-9a-f]*' /proc/net/if_inet6
		grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | sort -u -k2`)
	want := strings.Join([]string{
		"udp 127.0.0.1:53",
		"tcp 127.0.0.1:53 as 127.0.0.1:53",
		"tcp 0.0.0.0:443 as 198.18.0.1:443",
		"tcp 0.0.0.0:443 as 198.19.7.7:443",
		"tcp 0.0.0.0:80 as 198.19.255.254:80",
		"tcp 0.0.0.0:22 as 198.18.3.4:22",
		"tcp 0.0.0.0:80 as 127.0.0.2:80",
		"tcp [::]:443 as [fd00:706f:7374::77]:443",
		"tcp [::]:22 as [fd00:706f:7374:0:ffff::1]:22",
		"tcp [::]:80 as [::1]:80",
		"Connection refused",
		"Connection refused",
		"Network is unreachable", "Network is unreachable", "Network is unreachable", "Network is unreachable",
		"3", "fd00706f737400000000000000000001",
		"CapInh:\t0000000000000000", "",
	}, "\n")
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if len(low) != len(DNSSockets(DNSFake)) {
		t.Errorf("%d sockets", len(low))
	}
}

// A system without IPv6 has the sockets of IPv4, and their range.
func TestAnyIPWithoutIPv6(t *testing.T) {
	got, low := insideWith(t, Options{Low: DNSSockets(DNSFake), Any: true, noIPv6: true}, `
		cat < /dev/tcp/198.19.7.7/443
		(: < /dev/tcp/fd00:706f:7374::77/443) 2>&1 | tail -1 | sed 's/.*: //'`)
	if got != "tcp 0.0.0.0:443 as 198.19.7.7:443\nNetwork is unreachable\n" {
		t.Errorf("got %q", got)
	}
	if len(low) != 5 {
		t.Errorf("%d sockets: %v", len(low), low)
	}
}

// What a run has sockets at cannot be taken from it by what runs in it, nor by another
// address of the ranges.
func TestNobodyInsideCanBindThem(t *testing.T) {
	script := ""
	for _, at := range []string{"127.0.0.1:53", "0.0.0.0:443", "198.18.0.5:443", "198.18.0.5:53", "[::1]:22", "[fd00:706f:7374::5]:80", "127.0.0.1:22"} {
		script += InnerExe + " " + attackCommand + " serve '" + at + "'\n"
	}
	got, _ := insideWith(t, Options{Low: DNSSockets(DNSFake), Any: true}, script)
	if got != strings.Repeat("EACCES\n", 7) {
		t.Errorf("got %q", got)
	}
}

// The modes ask for no more than they need.
func TestDNSSockets(t *testing.T) {
	say := func(mode DNSMode) string {
		var out []string
		for _, s := range DNSSockets(mode) {
			out = append(out, s.Network+" "+s.Addr.String())
		}
		return strings.Join(out, ", ")
	}
	const resolver = "udp 127.0.0.1:53, tcp 127.0.0.1:53"
	const fake = resolver + ", tcp 0.0.0.0:443, tcp 0.0.0.0:80, tcp 0.0.0.0:22, tcp [::]:443, tcp [::]:80, tcp [::]:22"
	for mode, want := range map[DNSMode]string{DNSOff: "", DNSAnswer: resolver, DNSFake: fake, DNSAuto: fake} {
		if got := say(mode); got != want {
			t.Errorf("%s: got %s, want %s", mode, got, want)
		}
	}
	if _, err := ParseDNSMode("real"); err == nil || !strings.Contains(err.Error(), "auto, fake, answer or off") {
		t.Errorf("got %v", err)
	}
	for _, mode := range []DNSMode{DNSAuto, DNSFake, DNSAnswer, DNSOff, ""} {
		if got, err := ParseDNSMode(string(mode)); err != nil || got != mode && got != DNSAuto {
			t.Errorf("%s: %s, %v", mode, got, err)
		}
	}
}

// What PID 1 sends beside the listeners is looked at, and what nobody can use is closed.
func TestSpares(t *testing.T) {
	made := bareAll([]string{"udp4", "tcp4", "tcp6", "sctp4"})
	if len(made) < 2 {
		t.Fatalf("%d sockets", len(made))
	}
	s, err := newSpares(made)
	must(t, err)
	if _, ok := s.take(kind{datagram: true}); !ok {
		t.Error("there is no UDP socket")
	}
	s.close()
	for name, fd := range map[string]func() int{
		"a pair": func() int {
			fds, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			_ = unix.Close(fds[1])
			return fds[0]
		},
		"a file":  func() int { fd, _ := unix.Open("/dev/null", unix.O_RDONLY, 0); return fd },
		"listens": func() int { fd, _ := kind{}.socket(); _ = unix.Listen(fd, 1); return fd },
	} {
		other, err := kind{}.socket()
		must(t, err)
		bad := fd()
		if _, err := newSpares([]int{other, bad}); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		for _, fd := range []int{other, bad} {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
				t.Errorf("%s: a descriptor is open", name)
			}
		}
	}
}
