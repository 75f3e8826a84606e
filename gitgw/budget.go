package gitgw

import (
	"fmt"
	"sync"
	"time"
)

// mintWindow is the time in which Limits.Mints counts.
const mintWindow = time.Minute

// budgets bound what each run may cause with the appliance's credential, so that
// none uses up what all have together: a GitHub App's calls are counted by the
// hour, and when they are used up tokens can neither be made nor revoked. The zero
// value is ready to use.
type budgets struct {
	mu     sync.Mutex
	byRun  map[string]*budget
	pruned time.Time
}

// budget is one run's.
type budget struct {
	pushes int         // under way
	mints  []time.Time // within the window, oldest first
}

// of finds a run's budget and now and then forgets those that are of no account
// any more. mu is held.
func (b *budgets) of(run string, now time.Time) *budget {
	if now.Sub(b.pruned) > mintWindow {
		b.pruned = now
		for id, one := range b.byRun {
			if one.forget(now); one.pushes == 0 && len(one.mints) == 0 {
				delete(b.byRun, id)
			}
		}
	}
	one := b.byRun[run]
	if one == nil {
		if b.byRun == nil {
			b.byRun = map[string]*budget{}
		}
		one = &budget{}
		b.byRun[run] = one
	}
	return one
}

// forget drops the mints that have left the window.
func (b *budget) forget(now time.Time) {
	i := 0
	for i < len(b.mints) && now.Sub(b.mints[i]) >= mintWindow {
		i++
	}
	b.mints = b.mints[i:]
}

// enter counts a push as under way until leave is called. ok is false when the run
// has as many already.
func (b *budgets) enter(run string, most int) (leave func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.of(run, time.Now())
	if one.pushes >= most {
		return func() {}, false
	}
	one.pushes++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		one.pushes--
	}, true
}

// spend counts a token that is about to be minted. The error is fit for git's
// output and says when there is another one.
func (b *budgets) spend(run string, most int, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.of(run, now)
	one.forget(now)
	if len(one.mints) >= most {
		again := mintWindow - now.Sub(one.mints[len(one.mints)-most])
		return fmt.Errorf("this run has had %d tokens within a minute; try again in %s", most, max(again.Round(time.Second), time.Second))
	}
	one.mints = append(one.mints, now)
	return nil
}
