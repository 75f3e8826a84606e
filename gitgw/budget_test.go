package gitgw

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// However a run spreads its tokens over time, no minute of it has more than the
// limit, and none is refused that could be had.
func TestSpendIsAWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b budgets
		most := rapid.IntRange(1, 5).Draw(t, "most")
		now := time.Unix(1e9, 0)
		var given []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "pause")) * time.Second)
			within := 0
			for _, at := range given {
				if now.Sub(at) < mintWindow {
					within++
				}
			}
			err := b.spend("a", most, now)
			if (err == nil) != (within < most) {
				t.Fatalf("%d within a minute, at most %d: %v", within, most, err)
			}
			if err == nil {
				given = append(given, now)
			}
		}
	})
}

// The refusal says when to come back, and that is so.
func TestSpendSaysWhen(t *testing.T) {
	var b budgets
	now := time.Unix(1e9, 0)
	for i := range 3 {
		if err := b.spend("a", 3, now.Add(time.Duration(i)*10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	at := now.Add(25 * time.Second)
	err := b.spend("a", 3, at)
	if err == nil || err.Error() != "this run has had 3 tokens within a minute; try again in 35s" {
		t.Errorf("got %v", err)
	}
	if err := b.spend("b", 3, at); err != nil {
		t.Errorf("another run: %v", err)
	}
	if err := b.spend("a", 3, at.Add(35*time.Second)); err != nil {
		t.Errorf("when it was told: %v", err)
	}
	// A limit that has come down meanwhile is held to as well.
	if err := b.spend("a", 1, at.Add(36*time.Second)); err == nil || err.Error() != "this run has had 1 tokens within a minute; try again in 59s" {
		t.Errorf("got %v", err)
	}
}

// Runs that are over are forgotten, those with a push under way are not.
func TestBudgetsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		leave, ok := b.enter("pushing", 1)
		if !ok {
			t.Fatal("refused")
		}
		for i := range 1000 {
			if err := b.spend(fmt.Sprint("run", i), 1, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * mintWindow)
		_ = b.spend("new", 1, time.Now())
		if len(b.byRun) != 2 || b.byRun["pushing"] == nil || b.byRun["new"] == nil {
			t.Errorf("%d runs are kept", len(b.byRun))
		}
		if _, ok := b.enter("pushing", 1); ok {
			t.Error("a second push at a time")
		}
		leave()
		if _, ok := b.enter("pushing", 1); !ok {
			t.Error("refused after the first has ended")
		}
	})
}
