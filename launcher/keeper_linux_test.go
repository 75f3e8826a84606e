package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// When nobody will take the listeners any more they are closed: a refusal at once is
// better than a request that waits for ever.
func TestKeepGivesTheListenersUp(t *testing.T) {
	listen := func() *net.TCPListener {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	dir := newWorld(t).runs
	a := newAppliance(t, dir)
	var said []string
	k := &keeper{
		path: a.path, pair: lease.Pair{HTTP: listen(), SOCKS: listen()}, hello: lease.Hello{Spec: lease.Spec{ID: "x"}},
		lend: lease.Lend, event: func(lease.Event) {}, warn: func(f string, args ...any) { said = append(said, fmt.Sprintf(f, args...)) },
	}
	l, err := k.lendFirst(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.will(func(lease.Hello) lease.Answer {
		return lease.Answer{Error: &lease.Error{Code: lease.CodeUnknownPolicy, Message: "gone"}}
	}, nil)
	a.crash()
	a.start()
	k.keep(t.Context(), l) // returns by itself
	if _, err := k.pair.HTTP.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "without network") || !strings.Contains(text, "unknown_policy") {
		t.Errorf("said %q", text)
	}
}

// A session that was ended on request stays ended: lending it again would take back
// what whoever ended it has decided. Every other end is one to come back from.
func TestKeepObeysARequestedEnd(t *testing.T) {
	for code, final := range map[string]bool{lease.EndRequested: true, lease.EndClosing: false, lease.EndFailed: false} {
		t.Run(code, func(t *testing.T) {
			ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			socks, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			a := newAppliance(t, newWorld(t).runs)
			k := &keeper{
				path: a.path, pair: lease.Pair{HTTP: ln, SOCKS: socks}, hello: lease.Hello{Spec: lease.Spec{ID: "x"}},
				lend: lease.Lend, event: func(lease.Event) {}, warn: func(string, ...any) {},
			}
			l, err := k.lendFirst(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			kept := make(chan struct{})
			go func() {
				defer close(kept)
				k.keep(ctx, l)
			}()
			a.send(lease.Event{Type: lease.EventSessionClose, Session: "x", Fields: map[string]any{"code": code}})
			a.crash()
			a.start()
			if final {
				<-kept // by itself
				if n := len(a.seen()); n != 1 {
					t.Errorf("lent %d times, want once", n)
				}
				if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("the listener is open: %v", err)
				}
				return
			}
			for deadline := time.Now().Add(10 * time.Second); len(a.seen()) < 2; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it was not lent again")
				}
			}
			cancel()
			<-kept
		})
	}
}

// What a session was changed to while it lived is what is lent to the next appliance,
// and to the one after that.
func TestKeepLendsWhatTheSessionBecame(t *testing.T) {
	listen := func() *net.TCPListener {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	a := newAppliance(t, newWorld(t).runs)
	k := &keeper{
		path: a.path, pair: lease.Pair{HTTP: listen(), SOCKS: listen()}, hello: lease.Hello{Spec: lease.Spec{ID: "x", Policy: "wide", EgressAllowlist: []string{"a.example"}}},
		lend: lease.Lend, event: func(lease.Event) {}, warn: func(string, ...any) {},
	}
	l, err := k.lendFirst(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		k.keep(ctx, l)
	}()
	again := func(n int) lease.Hello {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); len(a.seen()) < n; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it was not lent again")
			}
		}
		return a.seen()[n-1]
	}
	a.send(lease.Event{Type: lease.EventTerms, Session: "x", Fields: map[string]any{"terms": lease.Terms{Policy: "narrow", Limits: lease.Caps{Tunnels: 2}}}})
	for n := 2; n <= 3; n++ {
		a.crash()
		a.start()
		h := again(n)
		if h.Spec.ID != "x" || h.Spec.Policy != "narrow" || h.Spec.Network() || len(h.Spec.EgressAllowlist) > 0 {
			t.Errorf("lent %+v", h.Spec)
		}
		if h.Resume == nil || h.Resume.ReadToken != readToken || h.Resume.Limits == nil || h.Resume.Limits.Tunnels != 2 {
			t.Errorf("resumed with %v", h.Resume)
		}
	}
	cancel()
	<-kept
}
