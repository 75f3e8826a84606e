package gitgw

import (
	"sync"
	"testing"
	"time"
)

func TestRoom(t *testing.T) {
	t.Parallel()
	var n Inspections
	for _, c := range []struct {
		run   string
		bytes int64
		want  Code
	}{
		{"a", 60, ""},
		{"a", 1, CodeSpoolRun},
		{"b", 41, CodeSpoolAll},
		{"b", 40, ""},
		{"c", 1, CodeSpoolAll},
	} {
		if got := n.grow(c.run, c.bytes, 100, 60); got != c.want {
			t.Errorf("%s %d: %q, want %q", c.run, c.bytes, got, c.want)
		}
	}
	n.shrink("a", 60)
	if got := n.grow("c", 60, 100, 60); got != "" {
		t.Errorf("after one has ended: %s", got)
	}
}

// A run with a crowd holds no more than its seats, and nobody waits behind the crowd.
func TestSeatsAreShared(t *testing.T) {
	t.Parallel()
	var n Inspections
	had := func(s *seat) bool {
		select {
		case <-s.ready:
			return true
		default:
			return false
		}
	}
	var crowd []*seat
	for range 100 {
		crowd = append(crowd, n.queue("a", 2, 1))
	}
	other, third := n.queue("b", 2, 1), n.queue("c", 2, 1)
	if !had(crowd[0]) || had(crowd[1]) || !had(other) || had(third) {
		t.Error("the seats went to others")
	}
	crowd[1].leave() // out of the middle of the queue
	crowd[0].leave()
	crowd[0].leave()
	if !had(crowd[2]) || had(crowd[3]) {
		t.Error("the next of the run has no seat")
	}
	other.leave()
	if !had(third) {
		t.Error("the third has no seat")
	}
	for _, s := range append(crowd, third) {
		s.leave()
	}
	if kept, seats, waiting := n.Taken(); kept != 0 || seats != 0 || waiting != 0 {
		t.Errorf("%d %d %d are left", kept, seats, waiting)
	}
}

// However many come and go at once, no bound is exceeded and everybody has a turn.
func TestSeatsUnderLoad(t *testing.T) {
	t.Parallel()
	var n Inspections
	var mu sync.Mutex
	now, most, of := 0, 0, map[string]int{}
	var all sync.WaitGroup
	for i := range 400 {
		run := string(rune('a' + i%5))
		all.Go(func() {
			s := n.queue(run, 3, 2)
			defer s.leave()
			if i%7 == 0 {
				return // it did not wait
			}
			<-s.ready
			mu.Lock()
			now++
			of[run]++
			most = max(most, now)
			if of[run] > 2 {
				t.Errorf("%d of %s", of[run], run)
			}
			mu.Unlock()
			mu.Lock()
			now--
			of[run]--
			mu.Unlock()
		})
	}
	all.Wait()
	if most > 3 {
		t.Errorf("%d at a time", most)
	}
	if _, seats, waiting := n.Taken(); seats != 0 || waiting != 0 {
		t.Errorf("%d %d are left", seats, waiting)
	}
}

// A run's work is counted over its looks, whatever becomes of them, and fades with time;
// another run has its own.
func TestWorkFades(t *testing.T) {
	t.Parallel()
	const budget, want, window = 1000, 400, 1000 * time.Second
	var n Inspections
	start := time.Now()
	done, again := n.hold("a", want, budget, window)
	second, _ := n.hold("a", want, budget, window)
	if done == nil || second == nil || again != 0 {
		t.Fatalf("the first looks have to wait for %s", again)
	}
	if third, again := n.hold("a", want, budget, window); third != nil || again < 190*time.Second || again > 201*time.Second {
		t.Errorf("a third may begin, or has to wait for %s", again)
	}
	if other, _ := n.hold("b", want, budget, window); other == nil {
		t.Error("another run has to wait")
	}
	done(400)
	second(0) // it failed before it began
	if again := n.spent("a", want, budget, window, start); again != 0 {
		t.Errorf("wait for %s", again)
	}
	done, _ = n.hold("a", want, budget, window)
	done(400)
	if again := n.spent("a", want, budget, window, start); again < 150*time.Second || again > 201*time.Second {
		t.Errorf("after 800: wait for %s", again)
	}
	if again := n.spent("a", want, budget, window, start.Add(250*time.Second)); again != 0 {
		t.Errorf("250 s later: wait for %s", again)
	}
	// What is of no account is forgotten.
	n.spent("x", want, budget, window, start.Add(24*time.Hour))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runs["a"] != nil {
		t.Errorf("%d runs are remembered", len(n.runs))
	}
}
