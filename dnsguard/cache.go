package dnsguard

import "time"

// maxCached bounds the findings kept for one session. Exact rules and wildcard
// budgets bound the names already; this holds when lists are huge.
const maxCached = 2048

type cacheKey struct {
	name  string
	qtype uint16
}

type cached struct {
	finding *finding
	expires time.Time
}

// cache keeps findings until their clamped TTL ends. Its owner locks.
type cache map[cacheKey]cached

// get returns a finding and how long it still holds.
func (c cache) get(key cacheKey, now time.Time) (*finding, time.Duration) {
	entry, ok := c[key]
	if !ok {
		return nil, 0
	}
	left := entry.expires.Sub(now)
	if left <= 0 {
		delete(c, key)
		return nil, 0
	}
	return entry.finding, left
}

// put keeps f for ttl. A full cache drops what is over, then anything: a lost
// entry costs one query.
func (c *cache) put(key cacheKey, f *finding, ttl time.Duration, now time.Time) {
	if ttl <= 0 {
		return
	}
	if *c == nil {
		*c = make(cache)
	}
	if len(*c) >= maxCached {
		for k, entry := range *c {
			if !entry.expires.After(now) {
				delete(*c, k)
			}
		}
		for k := range *c {
			if len(*c) < maxCached {
				break
			}
			delete(*c, k)
		}
	}
	(*c)[key] = cached{f, now.Add(ttl)}
}
