package violation

import (
	"fmt"
	"testing"
	"time"
)

func TestCover(t *testing.T) {
	now := time.Unix(1000, 0)
	var got []string
	s := NewSink(func(r Report) { got = append(got, r.Target+" "+r.Rule) })
	s.now = func() time.Time { return now }
	s.Cover("/w/sub/x.key")
	s.Add(Violation{Action: "mv", Target: "a", Raw: "mv: cannot move 'a' to 'x.key': Permission denied"})
	s.Add(Violation{Action: "create", Target: "sub/x.key"})
	s.Add(Violation{Action: "file-write-create", Target: "/w/sub/x.key", Rule: "*.key"})
	s.Add(Violation{Action: "create", Target: "y"})
	now = now.Add(window)
	s.Add(Violation{Action: "create", Target: "x.key"})
	if want := "[/w/sub/x.key *.key y  x.key ]"; fmt.Sprint(got) != want {
		t.Errorf("told %v, want %s", got, want)
	}
	for i := range 3 * maxKeys {
		s.Cover(fmt.Sprint(i))
	}
	if n := len(s.covered); n > maxKeys {
		t.Errorf("%d names are kept", n)
	}
}
