package egress

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
)

// leastSize is less than anything that a size bounds, and so a unit that was forgotten.
const leastSize = 1 << 10

// ParseSize reads a number of bytes with its unit, from 1 KiB on: a bare number could be
// meant in any.
func ParseSize(name, text string) (int64, error) {
	size, err := humanize.ParseBytes(text)
	if err != nil || strings.TrimRight(text, "0123456789., ") == "" {
		return 0, fmt.Errorf("parse %s %q: want a size with its unit, as in 50MB or 1GiB", name, text)
	}
	switch {
	case size < leastSize:
		return 0, fmt.Errorf("parse %s %q: want a size of 1KiB or more, as in 50MB or 1GiB", name, text)
	case size > math.MaxInt64:
		size = math.MaxInt64
	}
	return int64(size), nil
}
