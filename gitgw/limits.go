package gitgw

import "time"

// Limits bound what one push may take. A zero field means its default.
type Limits struct {
	// HeadBytes bounds commands, shallow lines and options together, inflated.
	// Default 4 MiB; 3,000 refs take 390 KB.
	HeadBytes int64
	// Commands is the most refs in one push. Default 5,000.
	Commands int
	// ShallowLines is the most boundary commits. Default 10,000.
	ShallowLines int
	// PushOptions is the most push options. Default 100.
	PushOptions int
	// Stall is how long the client may neither send nor take a byte while it is
	// its turn. Default 60 s.
	Stall time.Duration
	// Upstream is how long the forge may be silent. Default 2 min: receive-pack
	// says something every 5 s while it works.
	Upstream time.Duration
	// Ask is how long a push waits for an approver. Default 2 min, which most
	// agents' tools outwait.
	Ask time.Duration
	// Progress is the time between two lines while a push waits. Default 5 s.
	// It is also how soon a dead client is noticed.
	Progress time.Duration
	// Total bounds a whole push. Default 1 h, the life of a GitHub App's token.
	Total time.Duration
	// Revoke bounds the revocation of the token. Default 5 s.
	Revoke time.Duration
	// Retry are the pauses before the preflight is tried again, since a new
	// token takes a moment to be known everywhere. Default 1, 2 and 4 s.
	Retry []time.Duration
}

func (l Limits) withDefaults() Limits {
	l.HeadBytes = orDefault(l.HeadBytes, 4<<20)
	l.Commands = orDefault(l.Commands, 5000)
	l.ShallowLines = orDefault(l.ShallowLines, 10000)
	l.PushOptions = orDefault(l.PushOptions, 100)
	l.Stall = orDefault(l.Stall, 60*time.Second)
	l.Upstream = orDefault(l.Upstream, 2*time.Minute)
	l.Ask = orDefault(l.Ask, 2*time.Minute)
	l.Progress = orDefault(l.Progress, 5*time.Second)
	l.Total = orDefault(l.Total, time.Hour)
	l.Revoke = orDefault(l.Revoke, 5*time.Second)
	if l.Retry == nil {
		l.Retry = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
	}
	return l
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
