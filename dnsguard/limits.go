package dnsguard

import (
	"math"
	"strings"
	"time"
)

// bucket is a token bucket: rate tokens a second, burst at most. Its owner locks.
type bucket struct {
	tokens float64
	last   time.Time
}

// wait takes a token and returns 0, or returns how long until there is one.
func (b *bucket) wait(now time.Time, rate, burst float64) time.Duration {
	if b.last.IsZero() {
		b.tokens = burst
	} else if passed := now.Sub(b.last).Seconds(); passed > 0 {
		b.tokens = min(burst, b.tokens+passed*rate)
	}
	b.last = now
	// A hair of tolerance: after exactly 1/rate the sum of floats is a token.
	if b.tokens >= 1-1e-9 {
		b.tokens--
		return 0
	}
	return time.Duration(math.Ceil((1 - b.tokens) / rate * float64(time.Second)))
}

// budget counts what a session has said to the owners of wildcard zones. Every
// new name is a message to them of up to the sub-name's length, so names are
// counted per wildcard and their octets over all of them. Its owner locks.
type budget struct {
	names map[string]map[string]struct{} // rule → sub-names
	bytes int
}

// Reasons of a spent budget, in records and in explanations.
const (
	reasonWildcardUnique = "wildcard-unique"
	reasonWildcardSub    = "wildcard-sub"
	reasonWildcardBytes  = "wildcard-bytes"
)

// spend charges sub to rule. A name charged before is free, also when the
// budget is spent: it tells the zone nothing new. The reason is "" if it may go.
func (b *budget) spend(rule, sub string, maxNames, maxSub, maxBytes int) (reason string) {
	names := b.names[rule]
	if _, known := names[sub]; known {
		return ""
	}
	switch {
	case len(sub) > maxSub:
		return reasonWildcardSub
	case len(names) >= maxNames:
		return reasonWildcardUnique
	case b.bytes+len(sub) > maxBytes:
		return reasonWildcardBytes
	}
	if names == nil {
		names = make(map[string]struct{})
		if b.names == nil {
			b.names = make(map[string]map[string]struct{})
		}
		b.names[rule] = names
	}
	names[sub] = struct{}{}
	b.bytes += len(sub)
	return ""
}

// subName returns the part of name that the star of pattern stands for, "" when
// pattern has none. pattern matches name already.
func subName(pattern, name string) string {
	before, after, found := strings.Cut(pattern, "*")
	if !found || len(before)+len(after) >= len(name) {
		return ""
	}
	return name[len(before) : len(name)-len(after)]
}

// highEntropy reports a sub-name that looks like packed data: long, and with
// its characters spread as hex, base32 or base64 spread them. It is a hint for
// the log. Generated host names look the same, so nothing is refused by it; the
// budget is what holds.
func highEntropy(sub string) bool {
	text := strings.ReplaceAll(sub, ".", "")
	if len(text) < 24 {
		return false
	}
	var counts [256]int
	digits := 0
	for i := range len(text) {
		counts[text[i]]++
		if '0' <= text[i] && text[i] <= '9' {
			digits++
		}
	}
	entropy := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(text))
			entropy -= p * math.Log2(p)
		}
	}
	// Words keep to few letters and hardly any digits; hex of text reaches about
	// 3.3 bits with many digits, base32 and base64 go beyond 4.
	return entropy > 4.0 || entropy > 3.0 && digits*4 > len(text)
}
