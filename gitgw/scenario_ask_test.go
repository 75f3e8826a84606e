package gitgw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"postern/gitgw"
)

// approver answers by a function.
type approver struct {
	connected bool
	asked     atomic.Int32
	cancelled atomic.Int32
	answer    func(context.Context, gitgw.Question) (gitgw.Answer, error)
}

func (a *approver) Connected() bool { return a.connected }

func (a *approver) Ask(ctx context.Context, q gitgw.Question) (gitgw.Answer, error) {
	a.asked.Add(1)
	answer, err := a.answer(ctx, q)
	if ctx.Err() != nil {
		a.cancelled.Add(1)
	}
	return answer, err
}

// after answers when a while has passed.
func after(d time.Duration, answer gitgw.Answer, err error) func(context.Context, gitgw.Question) (gitgw.Answer, error) {
	return func(ctx context.Context, _ gitgw.Question) (gitgw.Answer, error) {
		select {
		case <-time.After(d):
			return answer, err
		case <-ctx.Done():
			return gitgw.Answer{}, ctx.Err()
		}
	}
}

// asking is the rule of the ask cases, with an approver and short times.
func asking(a *approver) option {
	return func(w *world) {
		rules("push **", "ask rel*")(w)
		w.gateway.Limits.Progress = 300 * time.Millisecond
		if a != nil {
			w.gateway.Approver = a
		}
	}
}

func TestA05(t *testing.T) {
	t.Parallel()
	w := newWorld(t, asking(nil))
	refused := " ! [remote rejected] main -> rel-1 (Control Center policy: needs approval and no approver is connected)"
	w.git("push", "origin", "main:rel-1").want(t, 1, refused)
	away := &approver{}
	w.change(func() { w.gateway.Approver = away })
	w.git("push", "origin", "main:rel-1").want(t, 1, refused)
	if away.asked.Load() != 0 {
		t.Error("an approver that is not connected was asked")
	}
	w.untouched()
}

func TestA06(t *testing.T) {
	t.Parallel()
	var seen gitgw.Question
	a := &approver{connected: true}
	a.answer = func(ctx context.Context, q gitgw.Question) (gitgw.Answer, error) {
		seen = q
		return after(time.Second, gitgw.Answer{Allowed: true, By: "ada"}, nil)(ctx, q)
	}
	w := newWorld(t, asking(a))
	w.git("push", "origin", "main:rel-1", "main:free").want(t, 0,
		"remote: Control Center: waiting for approval of push to rel-1 (question "+seen.ID,
		"remote: Control Center: waiting for approval (",
		" * [new branch]      main -> rel-1")
	w.wantRef("refs/heads/rel-1", w.head("main"))
	if seen.Session != "s1" || seen.Repository.FullName() != "acme/app" || len(seen.Refs) != 2 || seen.Refs[1].Verdict != gitgw.Ask && seen.Refs[0].Verdict != gitgw.Ask {
		t.Errorf("question: %+v", seen)
	}
	if r := w.record(); r.Approver != "ada" || r.Question != seen.ID || r.Outcome != gitgw.Accepted {
		t.Errorf("record: %+v", r)
	}
}

// The other ways a question can end.
func TestAskEnds(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	w := newWorld(t, asking(nil), func(w *world) { w.gateway.Limits.Ask = 2 * time.Second })
	for _, c := range []struct {
		name   string
		answer func(context.Context, gitgw.Question) (gitgw.Answer, error)
		want   string
	}{
		{"refused", after(0, gitgw.Answer{By: "ada", Reason: "not on a Friday"}, nil), "approval was refused by ada: not on a Friday"},
		{"refused plainly", after(0, gitgw.Answer{}, nil), "approval was refused"},
		{"failed", after(0, gitgw.Answer{Allowed: true}, errors.New("the approver cannot be reached")), "needs approval: the approver cannot be reached"},
		{"too late", after(time.Hour, gitgw.Answer{Allowed: true}, nil), "approval pending (id "},
		{"deaf", func(context.Context, gitgw.Question) (gitgw.Answer, error) {
			<-over
			return gitgw.Answer{Allowed: true}, nil
		}, "approval pending (id "},
		{"hostile words", after(0, gitgw.Answer{Reason: "a\nok refs/heads/rel-1\x1b[31m"}, nil), "approval was refused: a ok refs/heads/rel-1 [31m"},
	} {
		w.change(func() {
			w.gateway.Approver = &approver{connected: true, answer: c.answer}
			w.gateway.ApproverName = c.name // what one is still asked is no other's
		})
		r := w.git("push", "origin", "main:rel-1")
		want := " ! [remote rejected] main -> rel-1 (Control Center policy: " + c.want
		if r.code != 1 || !strings.Contains(r.out, want) {
			t.Errorf("%s: exit %d, want %q in\n%s", c.name, r.code, want, r.out)
		}
	}
	w.untouched()
}

// While a push waits, 20 MB of it stay in the client; then they are pushed.
func TestAskHoldsThePack(t *testing.T) {
	t.Parallel()
	a := &approver{connected: true, answer: after(time.Second, gitgw.Answer{Allowed: true}, nil)}
	w := newWorld(t, asking(a))
	w.commitBlob(20 << 20)
	w.git("push", "origin", "main:rel-big").want(t, 0, "waiting for approval", " * [new branch]      main -> rel-big")
	if r := w.record(); r.PackBytes < 20<<20 {
		t.Errorf("record: %+v", r)
	}
}

// A client that dies while it waits cancels its question.
func TestAskClientDies(t *testing.T) {
	t.Parallel()
	a := &approver{connected: true, answer: after(time.Hour, gitgw.Answer{Allowed: true}, nil)}
	w := newWorld(t, asking(a))
	w.commitBlob(4 << 20)
	cmd := exec.Command("git", "push", "origin", "main:rel-1")
	cmd.Dir = w.clone
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + w.dir, "GIT_CONFIG_GLOBAL=" + filepath.Join(w.dir, "gitconfig")}
	// git's helpers die with it, as they do at ^C.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); a.asked.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	if r := w.waitRecord(); r.Outcome != gitgw.Aborted || !r.ClientGone {
		t.Errorf("record: %+v", r)
	}
	for deadline := time.Now().Add(5 * time.Second); a.cancelled.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if a.cancelled.Load() != 1 {
		t.Error("the question was not withdrawn")
	}
	w.untouched()
}

func newRecorder(t *testing.T, h http.Handler, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, target, nil))
	return rec
}
