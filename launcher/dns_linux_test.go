package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

// fakeAnswer answers one query: A of a name that ends in .allowed with 198.18.7.7, other
// types of it with nothing, other names with NXDOMAIN.
func fakeAnswer(query []byte) []byte {
	if len(query) < 17 {
		return nil
	}
	end := 12
	for end < len(query) && query[end] != 0 {
		end += 1 + int(query[end])
	}
	if end += 5; end > len(query) {
		return nil
	}
	out := slices.Clone(query[:end])
	binary.BigEndian.PutUint16(out[2:], 0x8180)
	copy(out[6:12], make([]byte, 6))
	switch {
	case !strings.Contains(string(query[12:end]), "\x07allowed\x00"):
		out[3] |= 3
	case binary.BigEndian.Uint16(query[end-4:]) == 1:
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 198, 18, 7, 7)
	}
	return out
}

// serveNames serves what came beside the listeners, as a mode has it, and closes the rest.
func (a *appliance) serveNames(more []lease.Lent, mode string) {
	for _, s := range more {
		if mode == "" || mode == lease.DNSAnswer && s.Use != lease.UseDNS {
			_ = s.Close()
			continue
		}
		a.wg.Go(func() {
			buf := make([]byte, 1024)
			for s.Packets != nil {
				n, from, err := s.Packets.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = s.Packets.WriteTo(fakeAnswer(buf[:n]), from)
			}
			for {
				c, err := s.Listener.Accept()
				if err != nil {
					return
				}
				_, _ = fmt.Fprintf(c, "%s as %s\n", s.Use, c.LocalAddr())
				_ = c.Close()
			}
		})
	}
}

// answersNames is an appliance's answer to every hello, with a mode of names.
func answersNames(mode string) func(lease.Hello) lease.Answer {
	return func(h lease.Hello) lease.Answer {
		return lease.Answer{OK: true, Session: lease.Info{ID: h.Spec.ID}, Born: "b1", DNS: mode}
	}
}

func socketsOf(h lease.Hello) string {
	var out []string
	for _, s := range h.Sockets {
		out = append(out, fmt.Sprintf("%s %s %d", s.Use, s.Network, s.Port))
	}
	return strings.Join(out, ", ")
}

const (
	resolverSockets = "dns udp 53, dns tcp 53"
	fakeSockets     = resolverSockets + ", transparent tcp 443, transparent tcp 80, transparent tcp 22, transparent tcp 443, transparent tcp 80, transparent tcp 22"
)

// A program that knows of no proxy looks a name up and connects to it, and ends up where
// the run's rules are; one that is not allowed has no address.
func TestNamesInside(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	a.will(answersNames(lease.DNSFake), nil)
	got := w.postern("run", "--", "/bin/bash", "-c", `
		getent ahostsv4 www.allowed | sed -n 's/ *STREAM.*//p'
		for port in 443 80 22; do cat < /dev/tcp/www.allowed/$port; done
		getent hosts www.denied || echo no $?
		(: < /dev/tcp/www.allowed/8443) 2>/dev/null || echo nobody`)
	want := "198.18.7.7\ntransparent as 198.18.7.7:443\ntransparent as 198.18.7.7:80\ntransparent as 198.18.7.7:22\nno 2\nnobody\n"
	if got.stdout != want || got.code != 0 {
		t.Errorf("got %+v, want %q", got, want)
	}
	if lent := socketsOf(a.seen()[0]); lent != fakeSockets {
		t.Errorf("lent %s", lent)
	}
}

// What is lent is what the mode needs, whoever says it; and nothing without a network.
func TestNamesLent(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for _, tc := range []struct {
		name, want string
		args       []string
		env        string
	}{
		{"auto", fakeSockets, nil, ""},
		{"fake", fakeSockets, []string{"--dns", "fake"}, ""},
		{"answer", resolverSockets, []string{"--dns", "answer"}, ""},
		{"off", "", []string{"--dns", "off"}, ""},
		{"the environment", resolverSockets, nil, "POSTERN_DNS=answer"},
		{"a flag over the environment", "", []string{"--dns=off"}, "POSTERN_DNS=answer"},
		{"no network", "", []string{"--network", "off", "--dns", "fake"}, ""},
		{"ports that lead elsewhere", strings.ReplaceAll(fakeSockets, ", transparent tcp 443", ""), []string{"--host-port", "443:1"}, ""},
	} {
		w.env = append(slices.DeleteFunc(w.env, func(kv string) bool { return strings.HasPrefix(kv, "POSTERN_DNS=") }), tc.env)
		got := w.postern(append(append([]string{"run"}, tc.args...), "--", "true")...)
		seen := a.seen()
		if got.code != 0 || len(seen) == 0 || socketsOf(seen[len(seen)-1]) != tc.want {
			t.Errorf("%s: %+v, lent %s, want %s", tc.name, got, socketsOf(seen[len(seen)-1]), tc.want)
		}
		if told := strings.Contains(got.stderr, "port 443 inside"); told != slices.Contains(tc.args, "--host-port") {
			t.Errorf("%s: said %q", tc.name, got.stderr)
		}
	}
	if got := w.postern("run", "--dns", "real", "--", "true"); got.code != 125 || !strings.Contains(got.stderr, "auto, fake, answer or off") || !strings.Contains(got.stderr, "[usage]") {
		t.Errorf("got %+v", got)
	}
}

// What an appliance does not serve is closed: a lookup fails at once, and one that asked
// for more by name is told.
func TestNamesThatAreNotServed(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for mode, want := range map[string]string{
		"":              "no resolver\nnobody\n",
		lease.DNSAnswer: "dns as 127.0.0.1:53\nnobody\n",
		lease.DNSFake:   "dns as 127.0.0.1:53\ntransparent as 198.18.7.7:443\n",
	} {
		a.will(answersNames(mode), nil)
		got := w.postern("run", "--dns", "fake", "--", "/bin/bash", "-c", `
			{ cat < /dev/tcp/127.0.0.1/53; } 2>/dev/null || echo no resolver
			{ cat < /dev/tcp/198.18.7.7/443; } 2>/dev/null || echo nobody`)
		if got.stdout != want || got.code != 0 {
			t.Errorf("%q: %+v, want %q", mode, got, want)
		}
		if told := strings.Contains(got.stderr, "dns: fake"); told != (mode != lease.DNSFake) {
			t.Errorf("%q: said %q", mode, got.stderr)
		}
	}
}

// stands is a sandbox with, or without, its sockets.
type stands struct {
	low []sandbox.LowSocket
	err error
}

func (s stands) Low() ([]sandbox.LowSocket, error) { return s.low, s.err }
func (s stands) Pair() lease.Pair                  { return lease.Pair{} }

// Where a system takes the sockets away, a run does without them; one that asked for them
// by name does not start.
func TestDNSAutoFallsBack(t *testing.T) {
	denied := &sandbox.Refusal{Reason: sandbox.ReasonLowPorts, Detail: "AppArmor", Cure: "the cure"}
	for _, mode := range []sandbox.DNSMode{sandbox.DNSAuto, sandbox.DNSOff} {
		if more, err := names(stands{err: denied}, mode); err != nil || len(more) > 0 {
			t.Errorf("%s: %v, %v", mode, more, err)
		}
	}
	for _, mode := range []sandbox.DNSMode{sandbox.DNSFake, sandbox.DNSAnswer} {
		_, err := names(stands{err: denied}, mode)
		r, ok := errors.AsType[*sandbox.Refusal](err)
		if !ok || r.Reason != sandbox.ReasonLowPorts || r.Cure != "the cure" || !strings.Contains(r.Detail, string(mode)) || !strings.Contains(r.Detail, "AppArmor") {
			t.Errorf("%s: %v", mode, err)
		}
	}
	// A network that cannot be told from the host's: nobody would take sockets of every
	// address, and nobody is left to wait for an answer.
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	low := []sandbox.LowSocket{{LowPort: sandbox.LowPort{Network: "tcp"}, Listener: ln}}
	if more, err := names(stands{low: low}, sandbox.DNSAuto); err != nil || len(more) > 0 {
		t.Errorf("on the host: %v, %v", more, err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

// The sockets are lent again with the listeners, as long as they are served.
func TestKeeperLendsSocketsAgain(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	a.will(answersNames(lease.DNSFake), nil)
	cmd := w.command("run", "--", "/bin/bash", "-c", `
		cat < /dev/tcp/www.allowed/443; read
		cat < /dev/tcp/www.allowed/443; read
		{ cat < /dev/tcp/198.18.7.7/443; } 2>/dev/null || echo nobody`)
	in, out := io.Pipe()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = out
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		buf := make([]byte, 100)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			lines <- string(buf[:n])
		}
	}()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i, mode := range []string{lease.DNSFake, "", ""} {
		want := "transparent as 198.18.7.7:443\n"
		if i == 2 {
			want = "nobody\n"
		}
		select {
		case got := <-lines:
			if got != want {
				t.Errorf("round %d: %q", i, got)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("round %d: nothing", i)
		}
		if i == 2 {
			break
		}
		a.will(answersNames(mode), nil)
		a.crash()
		a.start()
		within(t, 20*time.Second, "it is lent again", func() bool { return len(a.seen()) == i+2 })
		_, _ = io.WriteString(stdin, "\n")
	}
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	_ = out.Close()
	for i, h := range a.seen() {
		if got := socketsOf(h); got != fakeSockets {
			t.Errorf("hello %d has %s", i, got)
		}
	}
}

// A host says it by a flag or a variable: its spec has no word for it.
func TestExecNames(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for _, tc := range []struct {
		spec fields
		args []string
		env  string
		want string
	}{
		{nil, nil, "", fakeSockets},
		{nil, []string{"--dns", "answer"}, "POSTERN_DNS=off", resolverSockets},
		{nil, nil, "POSTERN_DNS=off", ""},
		{fields{"networkEnabled": false}, []string{"--dns", "fake"}, "", ""},
	} {
		w.env = append(slices.Clone(w.env), "POSTERN_DNS="+strings.TrimPrefix(tc.env, "POSTERN_DNS="))
		got := w.postern(append(append([]string{"exec", "--spec", w.spec(tc.spec)}, tc.args...), "--", "true")...)
		seen := a.seen()
		if got.code != 0 || len(seen) == 0 || socketsOf(seen[len(seen)-1]) != tc.want {
			t.Errorf("%v %s: %+v, %s", tc.args, tc.env, got, socketsOf(seen[len(seen)-1]))
		}
	}
	if got := w.postern("exec", "--spec", w.spec(nil), "--dns", "x", "--", "true"); got.code != 125 || !strings.Contains(got.stderr, "auto, fake, answer or off") {
		t.Errorf("got %+v", got)
	}
}
