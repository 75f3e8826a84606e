package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"postern/caddy-modules/policy"
)

func keyFor(tb testing.TB, host string, port uint16) askKey {
	tb.Helper()
	h, err := policy.ParseHost(host)
	if err != nil {
		tb.Fatal(err)
	}
	return askKey{h, port}
}

// One question for all who wait for the same host and port, and one answer.
func TestAsksTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a asks
		var put int
		answer := make(chan HostAnswer)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				got, err := a.ask(t.Context(), t.Context(), keyFor(t, "example.com", 443), time.Minute, func(context.Context) (HostAnswer, error) {
					put++
					return <-answer, nil
				})
				if err != nil || !got.Allowed || got.By != "ada" {
					t.Errorf("%+v %v", got, err)
				}
			})
		}
		synctest.Wait()
		answer <- HostAnswer{Allowed: true, By: "ada"}
		all.Wait()
		if put != 1 || len(a.open) != 0 {
			t.Errorf("asked %d times, %d open", put, len(a.open))
		}
	})
}

// Who goes leaves the question to the others; the last one takes it along.
func TestAsksAreWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a asks
		key := keyFor(t, "example.com", 443)
		gone := make(chan error, 2)
		wait := func(ctx context.Context) {
			_, err := a.ask(ctx, t.Context(), key, time.Minute, func(ctx context.Context) (HostAnswer, error) {
				<-ctx.Done()
				gone <- context.Cause(ctx)
				return HostAnswer{}, ctx.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		}
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		go wait(first)
		go wait(second)
		synctest.Wait()
		stopFirst()
		synctest.Wait()
		if len(gone) != 0 || len(a.open) != 1 {
			t.Error("withdrawn while somebody waits")
		}
		stopSecond()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("withdrawn by %v", err)
		}
		synctest.Wait()
		if len(a.open) != 0 {
			t.Error("still open")
		}
	})
}

// The wait is the question's: who joins late waits for what is left of it.
func TestAsksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a asks
		life, end := context.WithCancel(t.Context())
		forever := func(ctx context.Context) (HostAnswer, error) {
			<-ctx.Done()
			return HostAnswer{}, ctx.Err()
		}
		started := time.Now()
		late := make(chan error)
		go func() {
			time.Sleep(20 * time.Second)
			_, err := a.ask(t.Context(), life, keyFor(t, "example.com", 443), 30*time.Second, forever)
			late <- err
		}()
		_, err := a.ask(t.Context(), life, keyFor(t, "example.com", 443), 30*time.Second, forever)
		if other := <-late; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(other, context.DeadlineExceeded) || time.Since(started) != 30*time.Second {
			t.Errorf("%v and %v after %s", err, other, time.Since(started))
		}

		// More than a session may have open, of which its end frees all.
		var all sync.WaitGroup
		for i := range maxAsks {
			all.Go(func() {
				if _, err := a.ask(t.Context(), life, keyFor(t, fmt.Sprintf("h%d.example.com", i), 443), time.Hour, forever); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		if _, err := a.ask(t.Context(), life, keyFor(t, "one-more.example.com", 443), time.Hour, forever); !errors.Is(err, errManyAsks) {
			t.Errorf("%v", err)
		}
		end()
		all.Wait()
	})
}

func TestRefusalsAreBounded(t *testing.T) {
	var a asks
	for i := range 2 * maxRefused {
		a.refuse(keyFor(t, fmt.Sprintf("h%d.example.com", i), 443), "no")
	}
	if len(a.refused) != maxRefused {
		t.Errorf("%d", len(a.refused))
	}
	if _, ok := a.refusal(keyFor(t, "h1.example.com", 443)); !ok {
		t.Error("forgotten")
	}
	if _, ok := a.refusal(keyFor(t, "h1.example.com", 80)); ok {
		t.Error("another port was asked about")
	}
}
