package session

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"postern/caddy-modules/session/lease"
)

// held holds a session.
func held(t *testing.T, r *Registry, id string) (ended <-chan struct{}, release func()) {
	t.Helper()
	life, ok := r.Life(id)
	if !ok {
		t.Fatal("there is no such session")
	}
	release, ok = life.Hold()
	if !ok {
		t.Fatal("refused")
	}
	return life.Ended(), release
}

// What is done in a session's name is told of the end, and waited for.
func TestWork(t *testing.T) {
	for name, moment := range map[string]time.Duration{"stops at once": 0, "needs a moment": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.Push(generation(t, r))
			open(t, r, lease.Spec{ID: "a"})
			life, _ := r.Life("a")
			ended, release := held(t, r, "a")
			select {
			case <-ended:
				t.Fatal("told of an end that has not begun")
			default:
			}
			var over atomic.Bool
			go func() {
				<-ended
				if _, ok := r.Life("a"); ok {
					t.Error("the session is still alive")
				}
				time.Sleep(moment)
				over.Store(true)
				release()
				release() // a deferred call more does no harm
			}()
			if err := r.Close("a"); err != nil {
				t.Error(err)
			}
			if !over.Load() {
				t.Error("the end did not wait")
			}
			if release, ok := life.Hold(); ok {
				t.Error("held after the end")
				release()
			}
		})
	}
}

// The end waits, and not for ever; what it leaves behind is counted.
func TestWorkIsBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		works []time.Duration
		took  time.Duration
		left  int
	}{
		{"nothing", nil, 0, 0},
		{"one", []time.Duration{time.Second}, time.Second, 0},
		{"the longest counts", []time.Duration{time.Second, 4 * time.Second, 2 * time.Second}, 4 * time.Second, 0},
		{"one does not stop", []time.Duration{time.Second, time.Hour}, workFor, 1},
		{"none stops", []time.Duration{time.Hour, time.Hour}, workFor, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w work
				for _, d := range c.works {
					finished, ok := w.begin()
					if !ok {
						t.Fatal("refused")
					}
					time.AfterFunc(d, finished)
				}
				start := time.Now()
				if left := w.wait(workFor); left != c.left {
					t.Errorf("%d are left, want %d", left, c.left)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				time.Sleep(2 * time.Hour) // and a late end does no harm
			})
		})
	}
}

// The id is free while the work of the session that had it comes to its end, and
// the two are not confused.
func TestWorkOfAnEarlierSession(t *testing.T) {
	r := newRegistry(t)
	r.Push(generation(t, r))
	open(t, r, lease.Spec{ID: "a"})
	ended, release := held(t, r, "a")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = r.Close("a")
	}()
	<-ended
	eventually(t, "the id is free", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.sessions["a"] == nil
	})
	open(t, r, lease.Spec{ID: "a"})
	again, done := held(t, r, "a")
	select {
	case <-closed:
		t.Error("the first one's end did not wait")
	default:
	}
	release()
	<-closed
	select {
	case <-again:
		t.Error("the second session's work was told to stop")
	default:
	}
	done()
}

func TestNobodyHasNoLife(t *testing.T) {
	r := newRegistry(t)
	if _, ok := r.Life("nobody"); ok {
		t.Error("nobody lives")
	}
}

// Work that begins while the end waits is either waited for or refused.
func TestWorkRaces(t *testing.T) {
	for range 200 {
		var w work
		var begun sync.WaitGroup
		running := make(chan func(), 8)
		for range cap(running) {
			begun.Go(func() {
				if finished, ok := w.begin(); ok {
					running <- finished
				}
			})
		}
		go func() {
			begun.Wait()
			close(running)
			for finished := range running {
				finished()
			}
		}()
		if left := w.wait(patience); left != 0 {
			t.Fatalf("%d are left", left)
		}
		if _, ok := w.begin(); ok {
			t.Fatal("work begins after the wait")
		}
	}
}
