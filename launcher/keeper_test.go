package main

import (
	"context"
	"errors"
	"fmt"
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
		lend: func(context.Context, string, lease.Hello, lease.Pair, ...lease.Lent) (*lease.Lease, error) {
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
