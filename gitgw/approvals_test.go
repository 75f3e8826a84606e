package gitgw

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// desk is an approver whose questions wait for a test to answer them.
type desk struct {
	mu   sync.Mutex
	open map[string]chan Answer
}

func (d *desk) Connected() bool { return true }

func (d *desk) Ask(ctx context.Context, q Question) (Answer, error) {
	c := make(chan Answer, 1)
	d.mu.Lock()
	if d.open == nil {
		d.open = map[string]chan Answer{}
	}
	d.open[q.ID] = c
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, q.ID)
	}()
	select {
	case a := <-c:
		return a, nil
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

func (d *desk) answer(t *testing.T, q *inquiry, allowed bool) {
	t.Helper()
	wait(t, func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.open[q.question.ID] != nil })
	d.mu.Lock()
	d.open[q.question.ID] <- Answer{Allowed: allowed, By: "ada"}
	d.mu.Unlock()
	<-q.answered
}

func (d *desk) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

func wait(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not so after 20 s")
		}
	}
}

// asker makes questions for the tests of the memory.
type asker struct {
	a     *Approvals
	d     *desk
	scope inquiryScope
	n     int
}

func newAsker(t *testing.T) *asker {
	t.Helper()
	k := &asker{a: &Approvals{}, d: &desk{}}
	k.scope = inquiryScope{session: "s", ended: make(chan struct{}), approver: "queue"}
	k.scope.repo, _ = ParseRepo("github.com/acme/app")
	t.Cleanup(func() {
		_ = k.a.Close()
		wait(t, func() bool { return k.d.waiting() == 0 })
	})
	return k
}

func (k *asker) put(scope inquiryScope, remember time.Duration, refs ...askedRef) *inquiry {
	k.n++
	q := Question{ID: fmt.Sprint("q", k.n), Deadline: time.Now().Add(remember)}
	return k.a.put(k.d, scope, q, refs, remember)
}

// kept is how many questions and answers are remembered.
func (k *asker) kept() int {
	k.a.mu.Lock()
	defer k.a.mu.Unlock()
	return len(k.a.all)
}

var (
	mainRef = askedRef{"refs/heads/main", "a", "b"}
	relRef  = askedRef{"refs/heads/rel", "0", "c"}
)

// TestApprovalIsForOnePush: an answer counts for the push it was asked about, and
// for no other that differs in anything.
func TestApprovalIsForOnePush(t *testing.T) {
	k := newAsker(t)
	q := k.put(k.scope, time.Hour, mainRef, relRef)
	if k.a.claim(k.scope, []askedRef{mainRef}) != nil {
		t.Error("a question that a push waits for was taken by another")
	}
	k.a.leave(q)
	k.d.answer(t, q, true)
	for name, c := range map[string]struct {
		change func(*inquiryScope)
		refs   []askedRef
	}{
		"other session":         {func(s *inquiryScope) { s.session = "t" }, []askedRef{mainRef}},
		"next of the same name": {func(s *inquiryScope) { s.ended = make(chan struct{}) }, []askedRef{mainRef}},
		"other repository":      {func(s *inquiryScope) { s.repo, _ = ParseRepo("github.com/acme/lib") }, []askedRef{mainRef}},
		"options":               {func(s *inquiryScope) { s.options = "ci.skip" }, []askedRef{mainRef}},
		"other approver":        {func(s *inquiryScope) { s.approver = "http unix//x" }, []askedRef{mainRef}},
		"other ref":             {nil, []askedRef{{"refs/heads/main2", "a", "b"}}},
		"other old":             {nil, []askedRef{{"refs/heads/main", "b", "b"}}},
		"other new":             {nil, []askedRef{{"refs/heads/main", "a", "c"}}},
		"one more":              {nil, []askedRef{mainRef, {"refs/heads/x", "a", "b"}}},
	} {
		scope := k.scope
		if c.change != nil {
			c.change(&scope)
		}
		if k.a.claim(scope, c.refs) != nil {
			t.Errorf("%s: the answer was found", name)
		}
	}
	// A part of it, once; the rest stays.
	for _, refs := range [][]askedRef{{mainRef}, {relRef}} {
		found := k.a.claim(k.scope, refs)
		if found != q || !found.answer.Allowed || found.answer.By != "ada" {
			t.Fatalf("%v: %+v", refs, found)
		}
		k.a.use(found, refs)
		if k.a.claim(k.scope, refs) != nil {
			t.Errorf("%v: used twice", refs)
		}
	}
	// The goroutine that keeps the question drops it as well, in its own time.
	if k.kept() != 0 {
		t.Errorf("%d entries are left", k.kept())
	}
}

// A no that came late is told as well, and a question that is still open is joined.
func TestLateRefusalAndJoining(t *testing.T) {
	k := newAsker(t)
	q := k.put(k.scope, time.Hour, mainRef)
	k.a.leave(q)
	joined := k.a.claim(k.scope, []askedRef{mainRef})
	if joined != q {
		t.Fatal("the open question was not found")
	}
	if k.a.claim(k.scope, []askedRef{mainRef}) != nil {
		t.Error("two pushes wait for one answer")
	}
	k.a.leave(joined)
	k.d.answer(t, q, false)
	if found := k.a.claim(k.scope, []askedRef{mainRef}); found != q || found.answer.Allowed || found.err != nil {
		t.Errorf("%+v", found)
	}
}

// TestApprovalsEnd: with the session, with the time, and when the approver fails,
// nothing is left, open or answered.
func TestApprovalsEnd(t *testing.T) {
	k := newAsker(t)
	ended := make(chan struct{})
	scope := k.scope
	scope.ended = ended
	open, answered := k.put(scope, time.Hour, mainRef), k.put(scope, time.Hour, relRef)
	kept := k.put(k.scope, time.Hour, mainRef)
	for _, q := range []*inquiry{open, answered, kept} {
		if !k.a.leave(q) {
			t.Fatal("no room")
		}
	}
	k.d.answer(t, answered, true)
	close(ended)
	wait(t, func() bool { k.a.mu.Lock(); defer k.a.mu.Unlock(); return len(k.a.all) == 1 && k.a.all[0] == kept })
	if <-open.answered; !errors.Is(open.err, errRunEnded) {
		t.Errorf("open: %v", open.err)
	}
	wait(t, func() bool { return k.d.waiting() == 1 })
	late := k.put(scope, time.Hour, mainRef)
	<-late.over
	if k.a.leave(late) {
		t.Error("remembered for a session that has ended")
	}
	short, fresh := k.put(k.scope, 50*time.Millisecond, relRef), k.put(k.scope, 50*time.Millisecond, askedRef{"x", "a", "b"})
	k.a.leave(short)
	k.a.leave(fresh)
	wait(t, func() bool { return k.kept() == 1 })
	wait(t, func() bool { return k.d.waiting() == 1 })
}

// TestApprovalsAreBounded: a run that asks without end loses its own questions, and
// nobody else's.
func TestApprovalsAreBounded(t *testing.T) {
	k := newAsker(t)
	other := k.scope
	other.session = "other"
	first := k.put(other, time.Hour, mainRef)
	k.a.leave(first)
	for i := range 50 {
		k.a.leave(k.put(k.scope, time.Hour, askedRef{fmt.Sprint("refs/heads/", i), "a", "b"}))
	}
	wait(t, func() bool { return k.d.waiting() == maxRememberedRun+1 })
	if k.a.claim(other, []askedRef{mainRef}) != first {
		t.Error("another session's question was lost")
	}
	if k.a.claim(k.scope, []askedRef{{"refs/heads/49", "a", "b"}}) == nil {
		t.Error("the newest was lost")
	}
	for i := range 2 * maxRemembered {
		scope := k.scope
		scope.session = fmt.Sprint("s", i)
		k.a.leave(k.put(scope, time.Hour, mainRef))
	}
	if n := k.kept(); n > maxRemembered {
		t.Errorf("%d are remembered", n)
	}
	wait(t, func() bool { return k.d.waiting() <= maxRemembered })
}

func TestShortTime(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Minute: "10m", 2 * time.Second: "2s", 90 * time.Second: "1m30s", 70 * time.Second: "1m10s",
		time.Hour: "1h", 70 * time.Minute: "1h10m", 10 * time.Second: "10s",
	} {
		if got := shortTime(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
