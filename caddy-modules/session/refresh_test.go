package session

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"postern/caddy-modules/session/lease"
)

// renewing is a session with a token of a forge, in a bubble.
func renewing(t *testing.T) (*session, *forge) {
	t.Helper()
	r := New(Options{})
	f := newForge()
	s := bare(r)
	s.spec.Repository = "github.com/acme/app"
	s.view.Store(&view{gen: &Generation{Broker: f}})
	if err := s.obtain(t.Context(), s.view.Load().gen, nil); err != nil {
		t.Fatal(err)
	}
	return s, f
}

// over ends what bare made: the token goes, and whatever is done meanwhile.
func (s *session) over() {
	s.cancel()
	s.revoke()
	s.settleWork()
	_ = s.registry.Destruct()
}

func (f *forge) lives(value string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[value]
}

func fresh(t *testing.T, s *session, want string) {
	t.Helper()
	got, expires, err := s.fresh(t.Context())
	if err != nil || got != want || !expires.IsZero() && time.Until(expires) < time.Minute {
		t.Errorf("got %q until %s, %v; want %q", got, expires, err, want)
	}
}

// A run of five hours has a token that lives whenever it asks, costs the forge one
// an hour, and leaves none.
func TestReadTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := renewing(t)
		events := s.registry.hub.subscribe("a", 16)
		fresh(t, s, "secret-1")
		time.Sleep(49 * time.Minute)
		fresh(t, s, "secret-1")
		time.Sleep(2 * time.Minute)
		fresh(t, s, "secret-2")
		if value, _ := s.token.get(); value != "secret-2" {
			t.Errorf("the session holds %q", value)
		}
		time.Sleep(oldFor - time.Second)
		if !f.lives("secret-1") {
			t.Error("the old token died while somebody may have been using it")
		}
		time.Sleep(2 * time.Second)
		if f.lives("secret-1") || f.alive() != 1 {
			t.Error("the old token lives on")
		}
		// Nobody asks for hours; nothing is minted, and then another one.
		time.Sleep(4 * time.Hour)
		if len(f.minted) != 2 {
			t.Errorf("%d minted for a run that asks for nothing", len(f.minted))
		}
		fresh(t, s, "secret-3")
		s.over()
		if f.alive() != 0 {
			t.Errorf("%d tokens outlive the session", f.alive())
		}
		if e := <-events.ch; e.Type != lease.EventToken || strings.Contains(e.Text("expires"), "secret") {
			t.Errorf("event %+v", e)
		}
		events.cancel()
		if _, _, err := s.fresh(t.Context()); codeOf(err) != lease.CodeNotFound {
			t.Errorf("after the end: %v", err)
		}
	})
}

// Many that ask at once cause one minting.
func TestReadTokenIsRenewedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := renewing(t)
		f.onMint(func(context.Context, string) error { time.Sleep(3 * time.Second); return nil })
		time.Sleep(55 * time.Minute)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { fresh(t, s, "secret-2") })
		}
		// Who gives up holds nobody else up.
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := s.fresh(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		all.Wait()
		if len(f.minted) != 2 {
			t.Errorf("%d minted", len(f.minted))
		}
		s.over()
		if f.alive() != 0 {
			t.Error("a token lives on")
		}
	})
}

// A forge that fails is asked every ten seconds at most, and the token at hand
// serves to its end.
func TestReadTokenIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := renewing(t)
		asked := 0
		f.onMint(func(context.Context, string) error { asked++; return errors.New("suspended") })
		time.Sleep(55 * time.Minute)
		for range 10 {
			fresh(t, s, "secret-1")
		}
		if asked != 1 {
			t.Errorf("the forge was asked %d times", asked)
		}
		time.Sleep(6 * time.Minute)
		if _, _, err := s.fresh(t.Context()); err == nil || !strings.Contains(err.Error(), "suspended") {
			t.Errorf("an expired token was given: %v", err)
		}
		f.onMint(nil)
		time.Sleep(freshAgain + time.Second)
		fresh(t, s, "secret-2")
		// The configuration loses its forge: what is there serves, and is revoked.
		s.view.Store(&view{gen: &Generation{}})
		time.Sleep(55 * time.Minute)
		fresh(t, s, "secret-2")
		s.over()
		if f.alive() != 0 {
			t.Error("a token lives on")
		}
	})
}

// The end of the session comes while a token is on its way.
func TestReadTokenComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := renewing(t)
		time.Sleep(55 * time.Minute)
		f.onMint(func(context.Context, string) error { time.Sleep(3 * time.Second); return nil })
		failed := make(chan error, 1)
		go func() { _, _, err := s.fresh(context.Background()); failed <- err }()
		time.Sleep(time.Second)
		s.over()
		if f.alive() != 0 || len(f.minted) != 2 {
			t.Errorf("%d minted, %d live", len(f.minted), f.alive())
		}
		if err := <-failed; err == nil {
			t.Error("a token was given after the end")
		}
	})
}

// A token of a former process may be dead, and is in the run's environment: another
// one is given, and it is revoked with the session.
func TestReadTokenOfAFormerProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		f := newForge()
		s := bare(r)
		s.spec.Repository = "github.com/acme/app"
		s.view.Store(&view{gen: &Generation{Broker: f}})
		if err := s.obtain(t.Context(), s.view.Load().gen, &lease.Resume{ReadToken: "secret-0", Born: "earlier"}); err != nil {
			t.Fatal(err)
		}
		f.onMint(func(context.Context, string) error { return errors.New("down") })
		fresh(t, s, "secret-0")
		f.onMint(nil)
		time.Sleep(freshAgain + time.Second)
		fresh(t, s, "secret-1")
		time.Sleep(10 * time.Minute)
		if !f.lives("secret-0") {
			t.Error("the token in the run's environment was revoked")
		}
		s.over()
		if f.alive() != 0 {
			t.Error("a token lives on")
		}
	})
}

// What has no token gets none, and asks nobody.
func TestNoReadToken(t *testing.T) {
	r := newRegistry(t)
	f := newForge()
	g := generation(t, r)
	g.Broker = f
	r.Push(g)
	open(t, r, lease.Spec{ID: "b"})
	if _, _, err := r.FreshReadToken(t.Context(), "b"); !errors.Is(err, ErrNoReadToken) {
		t.Errorf("%v", err)
	}
	if _, _, err := r.FreshReadToken(t.Context(), "nobody"); codeOf(err) != lease.CodeNotFound {
		t.Errorf("%v", err)
	}
	if len(f.minted) != 0 {
		t.Error("a token was minted")
	}
	if _, err := r.Open(t.Context(), lease.Spec{ID: "a", Repository: "github.com/acme/app"}, 0); err != nil {
		t.Fatal(err)
	}
	if value, _, err := r.FreshReadToken(t.Context(), "a"); err != nil || value != "secret-1" {
		t.Errorf("%q %v", value, err)
	}
	// One whose end is not known stays; a short one is not replaced at every question.
	s := r.find("a")
	s.token.set("fixed", time.Time{}, nil)
	s.token.set("short", time.Now().Add(5*time.Minute), nil)
	if value, _, err := r.FreshReadToken(t.Context(), "a"); err != nil || value != "short" || len(f.minted) != 1 {
		t.Errorf("%q %v", value, err)
	}
}
