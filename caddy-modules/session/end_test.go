package session

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// The host ends a leased session: the launcher reads why, its lease ends, and it
// cannot have the session back, whatever it claims.
func TestCloseALease(t *testing.T) {
	r, _, f, path := leased(t)
	spec := lease.Spec{ID: "a", Repository: "github.com/acme/app"}
	p := pair(t)
	l, err := lend(t, path, lease.Hello{Spec: spec}, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	if f.alive() != 0 {
		t.Error("Close returned before the token was revoked")
	}
	if end := l.End(); end != lease.EndRequested {
		t.Errorf("the launcher is told %q", end)
	}
	var last lease.Event
	for e := range l.Events() {
		last = e
	}
	if last.Type != lease.EventSessionClose || last.Text("reason") != "closed on request" || last.Text("code") != lease.EndRequested {
		t.Errorf("last event %+v", last)
	}
	for name, resume := range map[string]*lease.Resume{
		"a fresh hello":               nil,
		"a resume":                    {ReadToken: l.Answer().ReadToken, Born: r.Born()},
		"a resume of another process": {ReadToken: l.Answer().ReadToken, Born: "before"},
		"a resume that says nothing":  {},
		"a resume without its token":  {Born: r.Born()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lend(t, path, lease.Hello{Spec: spec, Resume: resume}, p)
			if codeOf(err) != lease.CodeEnded || !strings.Contains(err.Error(), "was ended on request") {
				t.Errorf("got %v", err)
			}
		})
	}
	if len(r.Snapshot()) != 0 || len(f.minted) != 1 {
		t.Errorf("%d sessions, %d tokens minted", len(r.Snapshot()), len(f.minted))
	}
	// What the run still holds of an earlier process ends too.
	eventually(t, "the token that was handed back is revoked", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.adopted) == 1 && len(f.live) == 0
	})
	// Another id is another run.
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "b"}}, pair(t)); err != nil {
		t.Error(err)
	}
	// The host's own word counts more than its earlier one.
	if _, err := r.Open(t.Context(), lease.Spec{ID: "a"}, 0); err != nil {
		t.Error(err)
	}
	if _, err := lend(t, path, lease.Hello{Spec: spec}, p); codeOf(err) != lease.CodeEnded {
		t.Errorf("while a host has the id: %v", err)
	}
}

// Every end has its code, and only the one on request is final.
func TestEndCodes(t *testing.T) {
	for _, c := range []struct {
		name, code string
		end        func(t *testing.T, r *Registry, p lease.Pair)
		final      bool
	}{
		{"on request", lease.EndRequested, func(_ *testing.T, r *Registry, _ lease.Pair) { _ = r.Close("a") }, true},
		{"shutting down", lease.EndClosing, func(_ *testing.T, r *Registry, _ lease.Pair) { _ = r.Destruct() }, false},
		{"a listener failed", lease.EndFailed, func(t *testing.T, _ *Registry, p lease.Pair) {
			t.Helper()
			raw, err := p.HTTP.SyscallConn()
			if err == nil {
				err = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
			}
			if err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _, _, path := leased(t)
			events := &sink{}
			g := generation(t, r)
			g.Emit = events.add
			r.Push(g)
			p := pair(t)
			l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, p)
			if err != nil {
				t.Fatal(err)
			}
			c.end(t, r, p)
			if end := l.End(); end != c.code {
				t.Errorf("the launcher is told %q, want %q", end, c.code)
			}
			eventually(t, "the host is told", func() bool { return len(events.of(lease.EventSessionClose)) == 1 })
			if e := events.of(lease.EventSessionClose)[0]; e.Text("code") != c.code || e.Text("reason") == "" {
				t.Errorf("the host is told %+v", e)
			}
			if c.code == lease.EndClosing {
				return // there is nobody to lend to
			}
			_, err = lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}, Resume: &lease.Resume{Born: r.Born()}}, p)
			if refused := codeOf(err) == lease.CodeEnded; refused != c.final {
				t.Errorf("lent again: %v", err)
			}
		})
	}
}

// The last word reaches a launcher whose queue of events has overflown.
func TestLastWordIsNotLost(t *testing.T) {
	r, _, _, path := leased(t)
	l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 * leaseQueue {
		r.Publish(lease.Event{Type: "x", Session: "a"})
	}
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	if end := l.End(); end != lease.EndRequested {
		t.Errorf("the launcher is told %q", end)
	}
}

// The close of an earlier session with its id is not the launcher's.
func TestNotItsOwnEnd(t *testing.T) {
	r, _, _, path := leased(t)
	l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t))
	if err != nil {
		t.Fatal(err)
	}
	r.Publish(lease.Event{Type: lease.EventSessionClose, Session: "a", Fields: map[string]any{"code": lease.EndRequested}})
	if err := r.Destruct(); err != nil {
		t.Fatal(err)
	}
	if end := l.End(); end != lease.EndClosing {
		t.Errorf("the launcher is told %q", end)
	}
}

// A session can be ended while its launcher waits for it, and while there is none
// because the launcher is on the way back. Either is final.
func TestCloseBetweenLeases(t *testing.T) {
	t.Run("being opened", func(t *testing.T) {
		r, _, f, path := leased(t)
		minting := make(chan struct{})
		f.onMint(func(context.Context, string) error { close(minting); time.Sleep(50 * time.Millisecond); return nil })
		spec := lease.Spec{ID: "a", Repository: "github.com/acme/app"}
		p := pair(t)
		lost := make(chan error, 1)
		go func() { _, err := lend(t, path, lease.Hello{Spec: spec}, p); lost <- err }()
		<-minting
		if err := r.Close("a"); err != nil {
			t.Errorf("close: %v", err)
		}
		if f.alive() != 0 || f.n.Load() != 1 {
			t.Errorf("%d of %d tokens live after Close", f.alive(), f.n.Load())
		}
		if err := <-lost; codeOf(err) != lease.CodeEnded {
			t.Errorf("the launcher is told %v", err)
		}
		if _, err := lend(t, path, lease.Hello{Spec: spec}, p); codeOf(err) != lease.CodeEnded {
			t.Errorf("again: %v", err)
		}
	})
	t.Run("away", func(t *testing.T) {
		r, _, _, path := leased(t)
		if err := r.Close("a"); codeOf(err) != lease.CodeNotFound {
			t.Errorf("close: %v", err)
		}
		_, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}, Resume: &lease.Resume{Born: "before"}}, pair(t))
		if codeOf(err) != lease.CodeEnded {
			t.Errorf("resumed: %v", err)
		}
		// A run that begins has nothing to do with it, and may come back itself.
		l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		eventually(t, "it resumes", func() bool {
			_, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}, Resume: &lease.Resume{Born: r.Born()}}, pair(t))
			return err == nil
		})
	})
}

// The id of a run that was ended is free for the next run when its launcher has
// gone, but never for who resumes it.
func TestIDAfterItsLauncher(t *testing.T) {
	launcher := exec.Command("sleep", "60")
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	dead := false
	defer func() {
		if !dead {
			_ = launcher.Process.Kill()
			_ = launcher.Wait()
		}
	}()
	r := newRegistry(t)
	var pid atomic.Int64
	pid.Store(int64(launcher.Process.Pid))
	r.credentials = func(*net.UnixConn) (lease.Peer, error) {
		return lease.Peer{UID: os.Geteuid(), PID: int(pid.Load())}, nil
	}
	r.Push(generation(t, r))
	path := openDoors(t, r)
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	pid.Store(int64(os.Getpid())) // what it started lends for it
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t)); codeOf(err) != lease.CodeEnded {
		t.Errorf("while the launcher lives: %v", err)
	}
	_ = launcher.Process.Kill()
	_ = launcher.Wait()
	dead = true
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}, Resume: &lease.Resume{Born: r.Born()}}, pair(t)); codeOf(err) != lease.CodeEnded {
		t.Errorf("resumed: %v", err)
	}
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "a"}}, pair(t)); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

// What is remembered is bounded: the oldest is forgotten.
func TestGravesAreBounded(t *testing.T) {
	var g graves
	for i := range 3 * maxGraves {
		g.bury(fmt.Sprint("run", i), "")
		g.bury("kept", "") // ended again and again: always the newest
	}
	if len(g.byID) != maxGraves || len(g.order) != maxGraves {
		t.Errorf("%d and %d are remembered, want %d", len(g.byID), len(g.order), maxGraves)
	}
	for id, want := range map[string]bool{"kept": true, "run0": false, fmt.Sprint("run", 3*maxGraves-1): true} {
		if refused := g.refuse(id, true) != nil; refused != want {
			t.Errorf("%s is refused: %v", id, refused)
		}
	}
	r := newRegistry(t)
	for _, id := range []string{"", "../a", strings.Repeat("x", 65)} {
		if err := r.Close(id); codeOf(err) != lease.CodeNotFound {
			t.Errorf("close %q: %v", id, err)
		}
	}
	if len(r.graves.byID) != 0 {
		t.Errorf("what is no id is remembered: %v", r.graves.order)
	}
}

// A host that ends a session while its PUT is under way has ended it.
func TestPutIsEnded(t *testing.T) {
	r, _, f, _ := leased(t)
	minting := make(chan struct{})
	f.onMint(func(context.Context, string) error { close(minting); time.Sleep(20 * time.Millisecond); return nil })
	client := control(t, r.options.RunDir)
	status := make(chan int, 1)
	go func() {
		req, _ := http.NewRequest(http.MethodPut, "http://control/v1/sessions/a", strings.NewReader(`{"id":"a","repository":"github.com/acme/app"}`))
		resp, err := client.Do(req)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-minting
	req, _ := http.NewRequest(http.MethodDelete, "http://control/v1/sessions/a", http.NoBody)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", resp.StatusCode)
	}
	if got := <-status; got != http.StatusGone {
		t.Errorf("PUT: %d", got)
	}
	if f.alive() != 0 || len(r.Snapshot()) != 0 {
		t.Error("something is left")
	}
}
