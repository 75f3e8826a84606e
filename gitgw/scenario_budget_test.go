package gitgw_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/gitgw"
)

// listing asks for the refs of a repository and returns status and text.
func (w *world) listing(repo string) (int, string) {
	w.t.Helper()
	resp, err := http.Get(w.url + "github.com/" + repo + ".git/info/refs?service=git-receive-pack") //nolint:noctx // ended with its server
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, readAll(w.t, resp)
}

// minted are the tokens that the gateway caused.
func (w *world) minted() (live, all int) {
	for _, tok := range w.hub.Tokens() {
		if tok.Installation == 0 {
			continue // of the equipment
		}
		all++
		if !tok.Revoked() {
			live++
		}
	}
	return live, all
}

// A run that asks for refs in a loop, or many times at once, costs one token for
// each repository, and that goes with the run.
func TestListingsShareAToken(t *testing.T) {
	t.Parallel()
	l := &life{}
	w := newWorld(t, allowAll, with("acme/lib"), with("acme/empty"), mortal(l))
	var all sync.WaitGroup
	for i := range 100 {
		repo := []string{"acme/lib", "acme/empty"}[i%2]
		ask := func() {
			if status, text := w.listing(repo); status != http.StatusOK {
				t.Errorf("%d %s", status, text)
			}
		}
		if i < 50 {
			ask()
		} else {
			all.Go(ask)
		}
	}
	all.Wait()
	if live, made := w.minted(); live != 2 || made != 2 {
		t.Errorf("%d tokens were minted, %d live", made, live)
	}
	if took := l.end(t); took > 5*time.Second {
		t.Errorf("the run's end took %s", took)
	}
	if live, _ := w.minted(); live != 0 {
		t.Errorf("%d tokens outlived the run", live)
	}
}

// The token serves for a while, and no other run.
func TestListingsTokenHasItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, with("acme/lib"), func(w *world) { w.gateway.Limits.Look = 300 * time.Millisecond })
	gone := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if live, _ := w.minted(); live == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("a token lives on")
			}
		}
	}
	w.listing("acme/lib")
	gone()
	w.listing("acme/lib")
	w.change(func() { w.caller.Session = "s2" })
	w.listing("acme/lib")
	if _, made := w.minted(); made != 3 {
		t.Errorf("%d tokens were minted", made)
	}
	gone()
	// Nor does it outlive the gateway, which may be closed while it still serves.
	w.change(func() { w.gateway.Limits.Look = time.Hour })
	w.listing("acme/lib")
	if live, _ := w.minted(); live != 1 {
		t.Errorf("%d tokens live", live)
	}
	_ = w.gateway.Close()
	if live, _ := w.minted(); live != 0 {
		t.Errorf("%d tokens outlived the gateway", live)
	}
	if status, _ := w.listing("acme/lib"); status != http.StatusOK {
		t.Errorf("a late request: %d", status)
	}
	gone()
	_ = w.gateway.Close()
}

// A token that is dead at the forge is not used for the rest of its minute.
func TestListingsTokenIsSpoilt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, with("acme/lib"), func(w *world) { w.gateway.Limits.Retry = []time.Duration{} })
	w.listing("acme/lib")
	w.hub.Advance(61 * time.Minute) // it ends before we think it does
	if status, _ := w.listing("acme/lib"); status != http.StatusBadGateway {
		t.Errorf("with a dead token: %d", status)
	}
	if status, text := w.listing("acme/lib"); status != http.StatusOK {
		t.Errorf("after it: %d %s", status, text)
	}
}

// Tokens within a minute are counted, listings and pushes together, and refused in
// words that git shows. Another run has its own.
func TestMintsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, with("acme/lib"), func(w *world) { w.gateway.Limits.Mints = 3 })
	w.listing("acme/lib")
	w.git("push", "origin", "main:a").want(t, 0, "[new branch]")
	w.git("push", "origin", "main:b").want(t, 0, "[new branch]")
	r := w.git("push", "origin", "main:c")
	r.want(t, 1, " ! [remote rejected] main -> c (Control Center: no push token: this run has had 3 tokens within a minute; try again in ")
	r.lacks(t, "Everything up-to-date")
	if status, _ := w.listing("acme/lib"); status != http.StatusOK {
		t.Errorf("a token that is there already does not serve: %d", status)
	}
	if status, text := w.listing("acme/gone"); status != http.StatusBadGateway || !strings.Contains(text, "no token to list acme/gone: this run has had 3 tokens within a minute") {
		t.Errorf("%d %q", status, text)
	}
	// And one that told the number of the repository, and was revoked at once.
	if _, made := w.minted(); made != 3+1 {
		t.Errorf("%d tokens were minted", made)
	}
	w.change(func() { w.caller.Session = "s2" })
	w.git("push", "origin", "main:d").want(t, 0, "[new branch]")
}

// What the rules deny costs nothing of the budget.
func TestDeniedPushesCostNoToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain, func(w *world) { w.gateway.Limits.Mints = 1 })
	for range 3 {
		w.git("push", "origin", "main").want(t, 1, "push to main is denied")
	}
	w.git("push", "origin", "main:x").want(t, 0, "[new branch]")
}

// Pushes at a time are counted as well: those that wait for an approver are under
// way.
func TestPushesAreBounded(t *testing.T) {
	t.Parallel()
	yes := make(chan struct{})
	a := &approver{connected: true, answer: func(ctx context.Context, _ gitgw.Question) (gitgw.Answer, error) {
		select {
		case <-yes:
			return gitgw.Answer{Allowed: true}, nil
		case <-ctx.Done():
			return gitgw.Answer{}, ctx.Err()
		}
	}}
	w := newWorld(t, asking(a), rules("push **", "ask rel*", "deny no"), func(w *world) { w.gateway.Limits.Pushes = 2 })
	var all sync.WaitGroup
	for _, ref := range []string{"main:rel-1", "main:rel-2"} {
		all.Go(func() { w.git("push", "origin", ref).want(t, 0, "[new branch]") })
	}
	for a.asked.Load() < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	for _, ref := range []string{"main:x", "main:rel-3"} {
		r := w.git("push", "origin", ref)
		r.want(t, 1, "(Control Center: 2 pushes of this run are under way already; push again when one has ended)")
		r.lacks(t, "Everything up-to-date")
	}
	w.git("push", "origin", "main:no").want(t, 1, "Control Center policy:") // a rule's answer is the better one
	close(yes)
	all.Wait()
	w.git("push", "origin", "main:x").want(t, 0, "[new branch]")
	if len(w.writeTokens()) != 3 {
		t.Errorf("%d write tokens", len(w.writeTokens()))
	}
}
