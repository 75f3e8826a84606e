package approve_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"postern/gitgw"
	"postern/gitgw/approve"
)

// asked puts a question in the background.
func asked(ctx context.Context, q *approve.Queue, id string) <-chan error {
	done := make(chan error, 1)
	go func() {
		answer, err := q.Ask(ctx, question(id))
		if err == nil && !answer.Allowed {
			err = errors.New("refused by " + answer.By)
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

func next(t *testing.T, l *approve.Listener) approve.Event {
	t.Helper()
	e, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestQueueAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := approve.NewQueue(0, 0)
		if q.Connected() {
			t.Error("connected before anybody listens")
		}
		l := q.Listen()
		defer func() { _ = l.Close() }()
		if !q.Connected() {
			t.Error("not connected")
		}
		yes, no := asked(t.Context(), q, "q1"), asked(t.Context(), q, "q2")
		for _, id := range []string{"q1", "q2"} {
			if e := next(t, l); e.Type != "asked" || e.ID != id || e.Question.Refs[0].Rule != "ask main" {
				t.Errorf("%+v", e)
			}
		}
		if open := q.Open(); len(open) != 2 || open[0].ID != "q1" {
			t.Errorf("open: %+v", open)
		}
		if err := q.Answer("q1", gitgw.Answer{Allowed: true}); err != nil {
			t.Error(err)
		}
		if err := q.Answer("q2", gitgw.Answer{By: "ada"}); err != nil {
			t.Error(err)
		}
		if err := <-yes; err != nil {
			t.Error(err)
		}
		if err := <-no; err == nil || err.Error() != "refused by ada" {
			t.Error(err)
		}
		if e := next(t, l); e.Type != "closed" || e.ID != "q1" {
			t.Errorf("%+v", e)
		}
		// An answer counts once.
		for _, id := range []string{"q1", "nope", ""} {
			if err := q.Answer(id, gitgw.Answer{Allowed: true}); !errors.Is(err, approve.ErrNoQuestion) {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
}

// A listener that comes later hears of what is open.
func TestQueueLateListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := approve.NewQueue(0, 0)
		first := q.Listen()
		done := asked(t.Context(), q, "q1")
		second := q.Listen()
		if e := next(t, second); e.Type != "asked" || e.ID != "q1" {
			t.Errorf("%+v", e)
		}
		_ = first.Close()
		_ = q.Answer("q1", gitgw.Answer{Allowed: true})
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = second.Close()
		if _, err := second.Next(t.Context()); err != nil {
			t.Error("what was heard before the close is lost:", err)
		}
		if _, err := second.Next(t.Context()); err == nil {
			t.Error("a closed listener hears")
		}
		_ = second.Close()
		if q.Connected() {
			t.Error("connected")
		}
	})
}

// When the last listener leaves, questions wait a moment for it to come back.
func TestQueueLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := approve.NewQueue(0, 10*time.Second)
		l := q.Listen()
		done := asked(t.Context(), q, "q1")
		_ = l.Close()
		time.Sleep(9 * time.Second)
		l = q.Listen() // a page that was reloaded
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatal("given up in spite of a listener:", err)
		default:
		}
		_ = l.Close()
		started := time.Now()
		if err := <-done; !errors.Is(err, approve.ErrLost) || time.Since(started) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(started))
		}
		if _, err := q.Ask(t.Context(), question("q2")); !errors.Is(err, approve.ErrLost) {
			t.Errorf("asked nobody: %v", err)
		}
	})
}

// The client's death withdraws its question.
func TestQueueWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := approve.NewQueue(0, 0)
		l := q.Listen()
		defer func() { _ = l.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		done := asked(ctx, q, "q1")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		next(t, l)
		if e := next(t, l); e.Type != "closed" || len(q.Open()) != 0 {
			t.Errorf("%+v, open %v", e, q.Open())
		}
		if err := q.Answer("q1", gitgw.Answer{Allowed: true}); !errors.Is(err, approve.ErrNoQuestion) {
			t.Errorf("%v", err)
		}
	})
}

func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := approve.NewQueue(2, 0)
		l := q.Listen()
		ctx, cancel := context.WithCancel(t.Context())
		first, second := asked(ctx, q, "q1"), asked(ctx, q, "q2")
		if _, err := q.Ask(ctx, question("q3")); !errors.Is(err, approve.ErrFull) {
			t.Errorf("a third of two: %v", err)
		}
		if _, err := q.Ask(ctx, question("q1")); err == nil {
			t.Error("one name twice")
		}
		if _, err := q.Ask(ctx, question("")); err == nil {
			t.Error("no name")
		}
		cancel()
		_, _ = <-first, <-second // both were withdrawn
		// A listener that does not read costs no more than its bound.
		for i := range 100 {
			c, stop := context.WithCancel(t.Context())
			done := asked(c, q, fmt.Sprint("r", i))
			stop()
			if err := <-done; err == nil {
				t.Error("answered by nobody")
			}
		}
		heard := 0
		for c, stop := context.WithTimeout(t.Context(), time.Second); ; heard++ {
			if _, err := l.Next(c); err != nil {
				stop()
				break
			}
		}
		if heard > 8 {
			t.Errorf("%d events were kept", heard)
		}
		_ = l.Close()
	})
}

// Many pushes, answers and withdrawals at once: each question ends, and ends
// once. For the race detector.
func TestQueueCrowd(t *testing.T) {
	q := approve.NewQueue(1000, 0)
	l := q.Listen()
	ctx, cancel := context.WithCancel(t.Context())
	var answerer, askers sync.WaitGroup
	answerer.Go(func() {
		for {
			e, err := l.Next(ctx)
			if err != nil {
				return
			}
			if e.Type == "asked" {
				_ = q.Answer(e.ID, gitgw.Answer{Allowed: true})
			}
		}
	})
	for i := range 200 {
		askers.Go(func() {
			ctx, stop := context.WithTimeout(ctx, 20*time.Second)
			defer stop()
			if i%3 == 0 {
				stop()
			}
			asked := question(fmt.Sprint(i))
			asked.Session = fmt.Sprint("run", i%20) // 10 each, which is less than a run's share
			answer, err := q.Ask(ctx, asked)
			if err == nil && !answer.Allowed || err != nil && i%3 != 0 {
				t.Errorf("%d: %+v %v", i, answer, err)
			}
		})
	}
	askers.Wait()
	cancel()
	answerer.Wait()
	_ = l.Close()
	if open := q.Open(); len(open) != 0 {
		t.Errorf("%d open", len(open))
	}
}

// A run has its share and no more, and is told so. When the queue is full, the run that
// has the most gives way to one that has few.
func TestQueueIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := approve.NewQueue(30, 0)
		l := q.Listen()
		ctx, cancel := context.WithCancel(t.Context())
		of := func(run string, i int) <-chan error {
			one := question(fmt.Sprint(run, i))
			one.Session = run
			done := make(chan error, 1)
			go func() {
				_, err := q.Ask(ctx, one)
				done <- err
			}()
			synctest.Wait()
			return done
		}
		var crowd []<-chan error
		for _, run := range []string{"a", "b"} {
			for i := range approve.DefaultShare {
				crowd = append(crowd, of(run, i))
			}
			if err := <-of(run, 99); !errors.Is(err, approve.ErrShare) || err.Error() != "too many questions of this run are open: 12" {
				t.Errorf("one more: %v", err)
			}
		}
		for i := range 20 {
			of(fmt.Sprint("other", i), 0)
		}
		open := q.Open()
		count := map[string]int{}
		for _, one := range open {
			count[one.Session]++
		}
		if len(open) != 30 || count["a"] != 5 || count["b"] != 5 || count["other19"] != 1 {
			t.Errorf("%d open: %v", len(open), count)
		}
		// Of the crowds the newest are gone, and know why.
		for _, i := range []int{5, 11, 17, 23} {
			if err := <-crowd[i]; !errors.Is(err, approve.ErrShare) || err.Error() != "too many questions of this run are open, and other runs ask as well" {
				t.Errorf("crowd %d: %v", i, err)
			}
		}
		if err := <-of("a", 100); !errors.Is(err, approve.ErrFull) {
			t.Errorf("a crowd asks again: %v", err)
		}
		cancel()
		synctest.Wait()
		if left := q.Open(); len(left) > 0 {
			t.Errorf("%d are left", len(left))
		}
		_ = l.Close()
		synctest.Wait()
	})
}
