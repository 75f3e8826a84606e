package gitgw_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/gitgw"
	"postern/integration/fakegithub"
)

// life is a run's, as whoever owns its session sees it.
type life struct {
	ended chan struct{}
	mu    sync.Mutex
	held  int
	holds int // ever
	late  bool
}

// mortal gives the run a life.
func mortal(l *life) option {
	l.ended = make(chan struct{})
	return func(w *world) {
		w.caller.Ended = l.ended
		w.caller.Hold = func() (func(), bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.late {
				return func() {}, false
			}
			l.held++
			l.holds++
			return sync.OnceFunc(func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.held--
			}), true
		}
	}
}

// tooLate lets no hold be taken any more.
func (l *life) tooLate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = true
}

func (l *life) holding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// end ends the run and returns how long something was still done in its name.
func (l *life) end(t *testing.T) time.Duration {
	t.Helper()
	started := time.Now()
	close(l.ended)
	for l.holding() > 0 {
		if time.Since(started) > 20*time.Second {
			t.Fatal("the run is held for ever")
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(started)
}

// endless is an approver that is asked and never answers.
func endless() *approver {
	return &approver{connected: true, answer: func(ctx context.Context, _ gitgw.Question) (gitgw.Answer, error) {
		<-ctx.Done()
		return gitgw.Answer{}, ctx.Err()
	}}
}

// slowMinter takes its time and cannot be hurried.
type slowMinter struct {
	gitgw.Minter
	begun chan struct{}
	takes time.Duration
}

func (m *slowMinter) Mint(ctx context.Context, repo gitgw.Repo, access gitgw.Access) (gitgw.Token, error) {
	m.begun <- struct{}{}
	time.Sleep(m.takes)
	return m.Minter.Mint(ctx, repo, access)
}

// The run ends while its push is under way. Its write token is gone within 5 s,
// whatever the forge does, and nothing is left that is done in its name.
func TestRunEndsInAPush(t *testing.T) {
	t.Parallel()
	minter := &slowMinter{begun: make(chan struct{}, 9), takes: time.Second}
	ask := endless()
	for _, c := range []struct {
		name    string
		options []option
		faults  fakegithub.Faults
		sent    func(body string) int // what the client has sent by then
		when    func(w *world) bool   // the run ends when this holds
		within  time.Duration
		outcome gitgw.Outcome
		reason  string
		ref     bool
		write   int // write tokens made
	}{
		{
			name: "the forge reports for 30 s", faults: fakegithub.Faults{SlowReport: 30 * time.Second},
			when:   func(w *world) bool { return w.refs("acme/app")["refs/heads/half"] != "" },
			within: 5 * time.Second, outcome: gitgw.Unknown, ref: true, write: 1,
			reason: "this run has ended before github.com reported; fetch to see whether the push arrived",
		},
		{
			name: "the forge reports within the grace", faults: fakegithub.Faults{SlowReport: time.Second},
			when:   func(w *world) bool { return w.refs("acme/app")["refs/heads/half"] != "" },
			within: 3 * time.Second, outcome: gitgw.Accepted, ref: true, write: 1,
		},
		{
			name:   "in mid pack",
			sent:   func(body string) int { return len(body) - 40 },
			when:   func(w *world) bool { return len(w.hub.Pushes()) > 0 },
			within: time.Second, outcome: gitgw.Aborted, reason: "this run has ended", write: 1,
		},
		{
			name:   "in the head",
			sent:   func(string) int { return 20 },
			when:   func(*world) bool { return true },
			within: time.Second, outcome: gitgw.Aborted, reason: "read push: this run has ended",
		},
		{
			name: "waiting for an approver", options: []option{asking(ask), rules("ask **")},
			when:   func(*world) bool { return ask.asked.Load() > 0 },
			within: time.Second, outcome: gitgw.Aborted, reason: "this run has ended",
		},
		{
			name: "while the token is being minted",
			options: []option{func(w *world) {
				minter.Minter = w.gateway.Minter
				w.gateway.Minter = minter
			}},
			when:   func(*world) bool { return len(minter.begun) > 0 },
			within: 2 * time.Second, outcome: gitgw.Aborted, reason: "this run has ended", write: 1,
		},
		{
			name: "while the forge does not know the token yet", faults: fakegithub.Faults{TokenLag: 2 * time.Second},
			when:   func(w *world) bool { return len(w.writeTokens()) > 0 },
			within: 5 * time.Second, outcome: gitgw.Aborted, reason: "this run has ended", write: 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := &life{}
			w := newWorld(t, append([]option{allowAll, mortal(l)}, c.options...)...)
			w.hub.SetFaults(c.faults)
			sent := c.sent
			if sent == nil {
				sent = func(body string) int { return len(body) }
			}
			conn := w.half(sent)
			defer func() { _ = conn.Close() }()
			for deadline := time.Now().Add(20 * time.Second); l.holding() == 0 || !c.when(w); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the push does not come so far")
				}
			}
			if took := l.end(t); took > c.within {
				t.Errorf("something was done in its name for %s, want %s", took, c.within)
			}
			tokens := w.writeTokens()
			for _, tok := range tokens {
				if !tok.Revoked() {
					t.Error("the write token lives on")
				}
			}
			if len(tokens) != c.write {
				t.Errorf("%d write tokens were made, want %d", len(tokens), c.write)
			}
			if r := w.record(); r.Outcome != c.outcome || r.Reason != c.reason || r.Revoked != (c.write > 0) {
				t.Errorf("record: %s %q, revoked %v", r.Outcome, r.Reason, r.Revoked)
			}
			if _, there := w.refs("acme/app")["refs/heads/half"]; there != c.ref {
				t.Errorf("the ref is there: %v", there)
			}
			// The client is cut off, as it is owed no answer that is not whole.
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.Copy(io.Discard, conn); isTimeout(err) && c.outcome != gitgw.Accepted {
				t.Error("the client is left hanging")
			}
		})
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error) //nolint:errorlint // as it comes from the connection
	return ok && e.Timeout()
}

// A run that has ended gets nothing any more, in words.
func TestAfterTheRun(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*life){
		"it has ended":              func(l *life) { close(l.ended) },
		"its end has come too far":  (*life).tooLate,
		"both, as it mostly is now": func(l *life) { close(l.ended); l.tooLate() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &life{}
			w := newWorld(t, allowAll, mortal(l))
			end(l)
			w.git("push", "origin", "main:x").want(t, 128, "remote: Control Center: this run has ended")
			resp := w.post(w.creation("refs/heads/x"), nil)
			if text := readAll(t, resp); resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "this run has ended") {
				t.Errorf("%d %q", resp.StatusCode, text)
			}
			w.untouched()
			if len(w.hub.Requests()) != 0 || l.holding() != 0 {
				t.Errorf("the forge was asked: %v; %d holds", w.hub.Requests(), l.holding())
			}
		})
	}
}

// blocked is a transport whose requests wait until they are given up.
type blocked struct{ begun chan struct{} }

func (b blocked) RoundTrip(r *http.Request) (*http.Response, error) {
	b.begun <- struct{}{}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// The run ends while refs are listed for it: the listing is given up, and the
// token it was made with goes.
func TestRunEndsInAListing(t *testing.T) {
	t.Parallel()
	l := &life{}
	forge := blocked{make(chan struct{}, 9)}
	w := newWorld(t, allowAll, with("acme/lib"), mortal(l))
	w.change(func() { w.gateway.Transport = forge })
	status := make(chan int, 1)
	go func() {
		resp, err := http.Get(w.url + "github.com/acme/lib.git/info/refs?service=git-receive-pack") //nolint:noctx // ended with its server
		if err != nil {
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-forge.begun
	if took := l.end(t); took > 2*time.Second {
		t.Errorf("something was done in its name for %s", took)
	}
	if got := <-status; got != http.StatusForbidden {
		t.Errorf("status %d", got)
	}
	minted := 0
	for _, tok := range w.hub.Tokens() {
		if tok.Installation != 0 {
			minted++
			if !tok.Revoked() {
				t.Errorf("a token lives on: %v", tok.Permissions)
			}
		}
	}
	if minted != 1 {
		t.Errorf("%d tokens were minted", minted)
	}
}
