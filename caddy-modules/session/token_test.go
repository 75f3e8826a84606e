package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

// Whoever gives up while a token is being minted leaves nothing behind: neither
// the id, nor the token that comes when nobody waits for it any more. The broker
// is not told to stop, since a request that is cancelled on its way may have made
// the token already.
func TestOpenIsCancelled(t *testing.T) {
	spec := lease.Spec{ID: "a", Repository: "github.com/acme/app"}
	for name, c := range map[string]struct {
		stop func(t *testing.T, r *Registry, cancel func())
		code string
		late error // of the forge
	}{
		"the caller goes": {func(_ *testing.T, _ *Registry, cancel func()) { cancel() }, lease.CodeUnavailable, nil},
		"the caller goes, and the forge fails": {
			func(_ *testing.T, _ *Registry, cancel func()) { cancel() }, lease.CodeUnavailable, errors.New("502"),
		},
		"closed meanwhile": {func(t *testing.T, r *Registry, _ func()) {
			t.Helper()
			if err := r.Close("a"); err != nil {
				t.Errorf("close: %v", err)
			}
		}, lease.CodeEnded, nil},
		"the process ends": {func(t *testing.T, r *Registry, _ func()) {
			t.Helper()
			if err := r.Destruct(); err != nil {
				t.Error(err)
			}
		}, lease.CodeClosing, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(Options{})
				defer func() { _ = r.Destruct() }()
				f := newForge()
				minting := make(chan struct{}, 1)
				f.onMint(func(ctx context.Context, _ string) error {
					minting <- struct{}{}
					time.Sleep(3 * time.Second) // the forge is slow, the token made all the same
					if err := ctx.Err(); err != nil {
						t.Errorf("the minting was stopped: %v", err)
					}
					return c.late
				})
				g := generation(t, r)
				g.Broker = f
				r.Push(g)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failed := make(chan error, 1)
				start := time.Now()
				go func() { _, err := r.Open(ctx, spec, 0); failed <- err }()
				<-minting
				if _, ok := r.Lookup("a"); ok {
					t.Error("a session that is being opened is shown as open")
				}
				c.stop(t, r, cancel)
				err := <-failed
				if codeOf(err) != c.code {
					t.Errorf("opening: %v, want %s", err, c.code)
				}
				if took := time.Since(start); took != 3*time.Second {
					t.Errorf("the end took %v", took)
				}
				if len(r.sessions) != 0 {
					t.Error("the id is still taken")
				}
				if f.n.Load() != 1 && c.late == nil || f.alive() != 0 {
					t.Errorf("%d tokens were made, %d live", f.n.Load(), f.alive())
				}
			})
		})
	}
}

// A forge that takes longer than anybody waits is cut off in the end, and what it
// makes even then is revoked.
func TestMintHangs(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(r *Registry, cancel func())
		mint func(ctx context.Context, _ string) error
		took time.Duration
	}{
		"nobody goes, the broker honours its context": {
			func(*Registry, func()) {}, func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, mintFor,
		},
		"nobody goes, the broker does not": {
			func(*Registry, func()) {}, func(context.Context, string) error { time.Sleep(time.Minute); return nil }, mintFor + time.Second + workFor,
		},
		"the caller goes": {
			func(_ *Registry, cancel func()) { cancel() }, func(context.Context, string) error { time.Sleep(15 * time.Second); return nil }, workFor,
		},
		"the process ends": {
			func(r *Registry, _ func()) { _ = r.Destruct() }, func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, workFor + lateMintFor,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(Options{})
				f := newForge()
				f.onMint(c.mint)
				g := generation(t, r)
				g.Broker = f
				r.Push(g)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failed := make(chan error, 1)
				start := time.Now()
				go func() {
					_, err := r.Open(ctx, lease.Spec{ID: "a", Repository: "github.com/acme/app"}, 0)
					failed <- err
				}()
				synctest.Wait()
				c.stop(r, cancel)
				if err := <-failed; err == nil {
					t.Error("opened")
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("the end took %v, want %v", took, c.took)
				}
				_ = r.Destruct()
				time.Sleep(time.Minute)
				synctest.Wait()
				if f.alive() != 0 {
					t.Errorf("%d tokens live", f.alive())
				}
			})
		})
	}
}

// The broker is told in whose name it mints: the launcher of a lease, nobody for
// a host.
func TestHolder(t *testing.T) {
	r, _, f, path := leased(t)
	var holders []lease.Process
	f.onMint(func(ctx context.Context, _ string) error { holders = append(holders, HolderFrom(ctx)); return nil })
	open(t, r, lease.Spec{ID: "api", Repository: "github.com/acme/app"})
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run", Repository: "github.com/acme/app"}}, pair(t)); err != nil {
		t.Fatal(err)
	}
	if len(holders) != 2 || holders[0] != "" || holders[1] != lease.ProcessOf(os.Getpid()) {
		t.Errorf("minted for %q", holders)
	}
}
