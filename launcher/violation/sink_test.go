package violation

import (
	"fmt"
	"testing"
	"time"
)

func newTestSink() (*Sink, *clock, *[]Report) {
	var got []Report
	c := &clock{at: time.Unix(1000, 0)}
	s := NewSink(func(r Report) { got = append(got, r) })
	s.now = c.now
	return s, c, &got
}

// TestSPEC93RetryStorm tells the same action and target once in five seconds, with how
// often it was.
func TestSPEC93RetryStorm(t *testing.T) {
	s, c, got := newTestSink()
	v := Violation{Action: "open", Target: "/x", Raw: "first"}
	for range 100 {
		s.Add(v)
		c.at = c.at.Add(10 * time.Millisecond)
	}
	if len(*got) != 1 || (*got)[0].Count != 1 || (*got)[0].Raw != "first" {
		t.Fatalf("in the first second: %+v", *got)
	}
	s.Add(Violation{Action: "open", Target: "/y"})
	s.Add(Violation{Action: "unlink", Target: "/x"})
	if len(*got) != 3 {
		t.Fatalf("another target and another action: %+v", *got)
	}
	named := Violation{Action: "open", Target: "/x", Rule: "x"} // another reason is another violation
	s.Add(named)
	s.Add(named)
	if len(*got) != 4 || (*got)[3].Rule != "x" {
		t.Fatalf("a rule: %+v", *got)
	}
	*got = (*got)[:3]
	c.at = c.at.Add(window)
	s.Add(v)
	if len(*got) != 4 || (*got)[3].Count != 100 {
		t.Fatalf("after the window: %+v", *got)
	}
	s.Add(v)
	s.Close()
	if len(*got) != 6 || (*got)[4].Count != 1 || (*got)[5].Rule != "x" {
		t.Fatalf("at the end: %+v", *got)
	}
	s.Add(v)
	s.Close()
	if len(*got) != 6 {
		t.Errorf("after the end: %+v", *got)
	}
}

// TestSPEC93Bounded remembers at most 512, sweeps what is old, and counts what it had
// to leave out.
func TestSPEC93Bounded(t *testing.T) {
	s, c, got := newTestSink()
	for i := range 5000 {
		s.Add(Violation{Action: "open", Target: fmt.Sprint(i)})
	}
	if len(*got) != burst || len(s.open) > maxKeys || s.Dropped() != 5000-burst {
		t.Fatalf("told %d, remembers %d, dropped %d", len(*got), len(s.open), s.Dropped())
	}
	for i := range 5000 {
		c.at = c.at.Add(time.Second / perSecond)
		s.Add(Violation{Action: "mkdir", Target: fmt.Sprint(i)})
		if len(s.open) > maxKeys {
			t.Fatalf("remembers %d", len(s.open))
		}
	}
	if n := len(*got) - burst; n < 4990 {
		t.Errorf("told %d of 5000 that came slowly", n)
	}
}
