package lease

import (
	"errors"
	"testing"
)

// The name of a command is the command's own choice, and must not be read as
// anything else.
func TestParseStat(t *testing.T) {
	tail := " 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 81223 1000 10 18446744073709551615"
	for _, c := range []struct {
		name, line string
		want       uint64
		gone, bad  bool
	}{
		{"plain", "12 (sh) S 1" + tail, 81223, false, false},
		{"spaces and a parenthesis", "12 (a) Z 1) S 1" + tail, 81223, false, false},
		{"zombie", "12 (sh) Z 1" + tail, 0, true, true},
		{"dead", "12 (sh) X 1" + tail, 0, true, true},
		{"cut short", "12 (sh) S 1 1 1", 0, false, true},
		{"empty", "", 0, false, true},
		{"no number", "12 (sh) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 soon 1000", 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseStat([]byte(c.line))
			if got != c.want || errors.Is(err, errNoProcess) != c.gone || (err != nil) != c.bad {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}
