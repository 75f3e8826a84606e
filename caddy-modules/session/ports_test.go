package session

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]string{
		"20000-29999": "20000 29999", "1-65535": "1 65535",
		"": "want FIRST-LAST", "20000": "want FIRST-LAST", "0-9": "starts with 0", "9-1": "at least two", "5-5": "at least two",
		"1-65536": "65535", "a-b": "digits", "1-2-3": "digits", "1 -2": "digits", "01-2": "starts with 0",
	} {
		first, last, err := parseRange(text)
		got := fmt.Sprint(first, " ", last)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// freeRange finds n consecutive ports that nobody has at the moment.
func freeRange(t *testing.T, n int) *ports {
	t.Helper()
	for first := 31000; first < 60000; first += n {
		free := true
		for port := first; free && port < first+n; port++ {
			ln, err := listenTCP(t.Context(), uint16(port))
			if free = err == nil; free {
				ln.Close()
			}
		}
		if free {
			return newPorts(fmt.Sprintf("%d-%d", first, first+n-1))
		}
	}
	t.Fatal("no free ports")
	return nil
}

// A port goes to one session in the life of the process, however often sessions
// come and go, and to the same one again only by name.
func TestPortsAreNeverReused(t *testing.T) {
	ctx := context.Background()
	p := freeRange(t, 6)
	seen := map[string]bool{}
	var first string
	for i := range 6 {
		ln, err := p.listen(ctx, fmt.Sprint("s", i), "")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		ln.Close() // the session is over at once
		if seen[addr] {
			t.Errorf("%s was given twice", addr)
		}
		seen[addr] = true
		if i == 0 {
			first = addr
		}
	}
	if _, err := p.listen(ctx, "s7", ""); err == nil || !strings.Contains(err.Error(), "enlarge the range") {
		t.Errorf("a seventh of six: %v", err)
	}
	if _, err := p.listen(ctx, "s1", first); err == nil || !strings.Contains(err.Error(), `given to session "s0"`) {
		t.Errorf("another session's port: %v", err)
	}
	if _, err := p.listen(ctx, "s0", ""); err == nil {
		t.Error("the same session, without naming it")
	}
	ln, err := p.listen(ctx, "s0", first)
	if err != nil {
		t.Fatal(err)
	}
	if ln.Addr().String() != first {
		t.Errorf("at %s", ln.Addr())
	}
	if _, err := p.listen(ctx, "s0", first); err == nil {
		t.Error("bound twice, so that two listeners share it")
	}
	ln.Close()
}

// Ports that others have are passed over.
func TestPortsInUseElsewhere(t *testing.T) {
	p := freeRange(t, 4)
	var held []net.Listener
	for port := p.first; port < p.last; port++ {
		ln, err := listenTCP(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		held = append(held, ln)
	}
	ln, err := p.listen(t.Context(), "a", "")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if want := fmt.Sprintf("127.0.0.1:%d", p.last); ln.Addr().String() != want {
		t.Errorf("at %s, want %s", ln.Addr(), want)
	}
	if _, err := p.listen(t.Context(), "a", ""); err == nil {
		t.Error("a port too many")
	}
	// One that was only passed over may be had later.
	held[0].Close()
	again, err := p.listen(t.Context(), "a", "")
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestPortsByName(t *testing.T) {
	p := freeRange(t, 4)
	for _, bad := range []string{"127.0.0.1:80", "127.0.0.1:65535", "nonsense"} {
		if _, err := p.listen(t.Context(), "a", bad); err == nil {
			t.Errorf("%s was given", bad)
		}
	}
	// After a restart nobody had it yet, and it is who asks first.
	want := fmt.Sprintf("127.0.0.1:%d", p.first+1)
	ln, err := p.listen(t.Context(), "a", want)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if _, err := p.listen(t.Context(), "b", want); err == nil {
		t.Error("given to another")
	}
	for range 3 {
		ln, err := p.listen(t.Context(), "c", "")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if ln.Addr().String() == want {
			t.Error("allocated to another")
		}
	}
}

// The range holds for whole sessions, and a failure in the middle gives nothing
// away but the port.
func TestSessionsRunOutOfPorts(t *testing.T) {
	r := newRegistry(t)
	r.ports = freeRange(t, 3)
	r.Push(generation(t, r))
	open(t, r, lease.Spec{ID: "a"})
	if _, err := r.Open(t.Context(), lease.Spec{ID: "b"}, 0); codeOf(err) != lease.CodeUnavailable || !strings.Contains(err.Error(), "no port from") {
		t.Errorf("got %v", err)
	}
	if len(r.sessions) != 1 {
		t.Error("something is left of the session that failed")
	}
}
