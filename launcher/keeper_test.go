package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"postern/caddy-modules/session/lease"
)

// waiting makes a keeper whose lend always fails, and counts.
func waiting(fail func(n int) error) (k *keeper, tries *[]time.Time) {
	tries = new([]time.Time)
	k = &keeper{
		hello: lease.Hello{Resume: &lease.Resume{ReadToken: "t", Born: "b"}},
		lend: func(context.Context, string, lease.Hello, lease.Pair) (*lease.Lease, error) {
			*tries = append(*tries, time.Now())
			return nil, fail(len(*tries))
		},
		warn: func(string, ...any) {},
	}
	return k, tries
}

func TestAgainBacksOffAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, tries := waiting(func(int) error { return fmt.Errorf("lend: %w", lease.ErrNotRunning) })
		began := time.Now()
		_, err := k.again(t.Context())
		if !errors.Is(err, lease.ErrNotRunning) {
			t.Fatalf("got %v", err)
		}
		if took := time.Since(began); took < giveUp || took > giveUp+2*lastRetry {
			t.Errorf("gave up after %s", took)
		}
		at := *tries
		if first := at[0].Sub(began); first != firstRetry {
			t.Errorf("first try after %s", first)
		}
		for i := 1; i < len(at); i++ {
			gap := at[i].Sub(at[i-1])
			want := min(firstRetry<<i, lastRetry)
			if i > 10 {
				want = lastRetry
			}
			if gap != want {
				t.Fatalf("try %d after %s, want %s", i, gap, want)
			}
		}
	})
}

func TestAgainStopsAtARefusal(t *testing.T) {
	for _, code := range []string{lease.CodeUnknownPolicy, lease.CodeNotPermitted, lease.CodeBadRule, lease.CodeVersion, lease.CodeConflict} {
		synctest.Test(t, func(t *testing.T) {
			k, tries := waiting(func(int) error { return &lease.RefusedError{Code: code} })
			if _, err := k.again(t.Context()); err == nil || len(*tries) != 1 {
				t.Errorf("%s: %v after %d tries", code, err, len(*tries))
			}
		})
	}
}

// The old connection may not have been noticed yet, the configuration not loaded.
func TestAgainWaitsOutWhatPasses(t *testing.T) {
	for _, code := range passing {
		synctest.Test(t, func(t *testing.T) {
			k, tries := waiting(func(n int) error {
				if n < 5 {
					return &lease.RefusedError{Code: code}
				}
				return &lease.RefusedError{Code: lease.CodeUnknownPolicy}
			})
			if _, err := k.again(t.Context()); err == nil || len(*tries) != 5 {
				t.Errorf("%s: %v after %d tries", code, err, len(*tries))
			}
		})
	}
}

func TestAgainEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		k, _ := waiting(func(int) error { return lease.ErrNotRunning })
		go func() {
			time.Sleep(3 * time.Second)
			cancel()
		}()
		began := time.Now()
		if _, err := k.again(ctx); !errors.Is(err, context.Canceled) || time.Since(began) != 3*time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

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
