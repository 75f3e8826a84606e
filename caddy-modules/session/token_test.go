package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"postern/caddy-modules/session/lease"
)

// bare makes a session that has a token and nothing else.
func bare(r *Registry) *session {
	s := &session{registry: r, log: slog.New(slog.DiscardHandler), spec: lease.Spec{ID: "a"}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// A token never outlives its session by more than 5 s of trying, however the
// forge behaves; what could not be revoked is counted.
func TestRevocationIsBounded(t *testing.T) {
	broken := errors.New("502")
	for _, c := range []struct {
		name   string
		revoke func(ctx context.Context, try int) error
		took   time.Duration
		lost   uint64
		tries  int
	}{
		{"at once", func(context.Context, int) error { return nil }, 0, 0, 1},
		{"at the third attempt", func(_ context.Context, try int) error {
			if try < 3 {
				return broken
			}
			return nil
		}, 2 * revokeEvery, 0, 3},
		{"never", func(context.Context, int) error { return broken }, revokeFor, 1, 10},
		{"hangs, and honours its context", func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, revokeFor, 1, 1},
		{"hangs, and does not", func(context.Context, int) error { time.Sleep(time.Minute); return nil }, revokeFor, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Registry{}
				s := bare(r)
				s.cancel() // it has ended
				var tried atomic.Int64
				s.token.set("secret", time.Time{}, func(ctx context.Context) error {
					return c.revoke(ctx, int(tried.Add(1)))
				})
				start := time.Now()
				s.revoke()
				if took := time.Since(start); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				tries := int(tried.Load())
				// The last pause and the end fall into one instant.
				if tries != c.tries && (c.tries == 1 || tries != c.tries+1) || r.unrevoked.Load() != c.lost {
					t.Errorf("%d tries, %d lost; want %d and %d", tries, r.unrevoked.Load(), c.tries, c.lost)
				}
				if v, _ := s.token.get(); v != "" {
					t.Error("the value is kept")
				}
				s.revoke() // there is nothing left to revoke
				if int(tried.Load()) != tries {
					t.Error("revoked again")
				}
				time.Sleep(time.Hour) // lets a broker that hangs come to its end
			})
		})
	}
}

func TestMint(t *testing.T) {
	r := newRegistry(t)
	f := newForge()
	g := generation(t, r)
	g.Broker = f
	r.Push(g)

	a, err := r.Open(t.Context(), lease.Spec{ID: "a", Repository: "github.com/acme/app"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if a.ReadToken != "secret-1" || time.Until(a.ReadTokenExpires) < 50*time.Minute || f.minted[0] != "github.com/acme/app" {
		t.Errorf("answer %v, minted %v", a.ReadToken, f.minted)
	}
	if a.Git.URL != "http://git.internal/" || a.Git.Forges[0] != "github.com" {
		t.Errorf("git is %+v", a.Git)
	}
	if v, _, ok := r.ReadToken("a"); !ok || v != "secret-1" {
		t.Errorf("ReadToken gives %q, %v", v, ok)
	}
	if b := open(t, r, lease.Spec{ID: "b"}); b.ID != "b" || len(f.minted) != 1 {
		t.Error("a session without a repository got a token")
	}
	if _, _, ok := r.ReadToken("b"); ok {
		t.Error("ReadToken gives one for it")
	}
	if _, _, ok := r.ReadToken("nobody"); ok {
		t.Error("ReadToken gives one for nobody")
	}
	// The Info has no room for it, and nothing else may have it either.
	info, _ := r.Lookup("a")
	if strings.Contains(fmt.Sprintf("%+v", info), "secret") {
		t.Errorf("info %+v", info)
	}
	r.find("a").token.set("old", time.Now().Add(-time.Second), nil)
	if _, _, ok := r.ReadToken("a"); ok {
		t.Error("an expired token is given")
	}
}

// A token that was minted is revoked when the rest of the opening fails, and a
// launch without its token does not happen.
func TestMintFails(t *testing.T) {
	r := newRegistry(t)
	f := newForge()
	f.onMint(func(context.Context, string) error { return errors.New("no installation for acme") })
	g := generation(t, r)
	g.Broker = f
	r.Push(g)
	spec := lease.Spec{ID: "a", Repository: "github.com/acme/app"}
	_, err := r.Open(t.Context(), spec, 0)
	if codeOf(err) != lease.CodeUnavailable || !strings.Contains(err.Error(), "no installation for acme") {
		t.Errorf("got %v", err)
	}
	f.onMint(nil)
	busy := pair(t)
	spec.Listen = &lease.Listen{Network: lease.NetworkTCP, HTTP: busy.HTTP.Addr().String()}
	if _, err := r.Open(t.Context(), spec, 0); codeOf(err) != lease.CodeUnavailable {
		t.Errorf("opened on a port that is taken: %v", err)
	}
	if len(f.minted) != 1 || f.alive() != 0 {
		t.Errorf("minted %d, alive %d", len(f.minted), f.alive())
	}
	if len(r.Snapshot()) != 0 || len(r.sessions) != 0 {
		t.Error("something is left")
	}
}

// Whoever gives up while a token is being minted leaves nothing behind.
func TestOpenIsCancelled(t *testing.T) {
	r := newRegistry(t)
	f := newForge()
	minting := make(chan struct{}, 1)
	f.onMint(func(ctx context.Context, _ string) error {
		minting <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	g := generation(t, r)
	g.Broker = f
	r.Push(g)
	spec := lease.Spec{ID: "a", Repository: "github.com/acme/app"}
	for name, stop := range map[string]func(cancel func()){
		"the caller goes": func(cancel func()) { cancel() },
		"closed meanwhile": func(func()) {
			if err := r.Close("a"); codeOf(err) != lease.CodeNotFound {
				t.Errorf("close: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() { _, err := r.Open(ctx, spec, 0); failed <- err }()
			<-minting
			if _, ok := r.Lookup("a"); ok {
				t.Error("a session that is being opened is shown as open")
			}
			stop(cancel)
			if err := <-failed; err == nil {
				t.Error("opened")
			}
			if len(r.sessions) != 0 {
				t.Error("the id is still taken")
			}
		})
	}
}
