package gitgw

import (
	"time"

	"postern/gitgw/pack"
)

// MaxRefs is the most refs in one push by default, MaxLooked the most bytes of a pack
// that a rule looks into, which is also the most that GitHub takes. No condition of a
// configuration is wider.
const (
	MaxRefs         = 5000
	MaxLooked int64 = 2 << 30
)

// MaxAsk is the longest that a push may wait for an approver: as long as it may take
// otherwise. Nobody who is asked for longer is waited for by git, or by who runs it.
const MaxAsk = time.Hour

// Limits bound what one push may take. A zero field means its default.
type Limits struct {
	// HeadBytes bounds commands, shallow lines and options together, inflated.
	// Default 4 MiB; 3,000 refs take 390 KB.
	HeadBytes int64
	// Commands is the most refs in one push. Default [MaxRefs].
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
	// Ask is how long a push waits for an approver, [MaxAsk] at most. Default 2 min,
	// which most agents' tools outwait.
	Ask time.Duration
	// Remember is how long a question stays open after its push has given up, and
	// how long an answer that came then is kept for the push made again. Default
	// 10 min.
	Remember time.Duration
	// Progress is the time between two lines while a push waits. Default 5 s.
	// It is also how soon a dead client is noticed.
	Progress time.Duration
	// Total bounds how long a push is kept and looked into, and then how long it takes
	// to the forge, from its token on. Default 1 h, the life of a GitHub App's token.
	Total time.Duration
	// Revoke bounds the revocation of the token. Default 5 s.
	Revoke time.Duration
	// Grace is how long a push that the forge has whole may go on after its run
	// has ended: the refs are going to move, and the audit wants to know. Default
	// 3 s, which with the revocation is less than the 5 s a run's end may take.
	Grace time.Duration
	// Pushes is how many pushes of one run are under way at a time. Default 4.
	Pushes int
	// Mints is how many tokens one run may cause within a minute. Default 30; an
	// installation of a GitHub App has 5,000 calls an hour for everybody, and
	// revoking needs some of them.
	Mints int
	// Look is how long a token to list refs serves further listings of the same
	// run and repository. Default 1 min.
	Look time.Duration
	// Kept is the most bytes of a pack that a rule looks into. Default [MaxLooked].
	Kept int64
	// Spool is the most bytes of packs that are kept at a time, of all runs; SpoolRun of
	// one. Default 8 GiB and 2 GiB. SpoolFree is what is left free on the disk for
	// others, such as the record of the tokens. Default 256 MiB; of a small disk an
	// eighth.
	Spool, SpoolRun, SpoolFree int64
	// Pack bounds what a look into a pack may cost.
	Pack pack.Limits
	// Looks is how many packs are looked into at a time; LooksRun how many of one run.
	// Default 4 and 1. LookWait is how long a push waits for its turn. Default 2 min.
	Looks, LooksRun int
	LookWait        time.Duration
	// Work is the most bytes inflated to look into one run's packs within a WorkWindow.
	// Default 16 GiB within 10 min.
	Work       int64
	WorkWindow time.Duration
	// LFSBytes is the largest object of Git LFS. Default 5 GiB.
	LFSBytes int64
	// LFSRunObjects and LFSRunBytes are the most objects of Git LFS, and bytes of them,
	// that one run may have under way. Default 2,000 and 100 GiB.
	LFSRunObjects int
	LFSRunBytes   int64
	// LFSIdle is how long an upload that was allowed may wait to be begun, after the
	// one before. Default 3 min.
	LFSIdle time.Duration
	// Retry are the pauses before the preflight is tried again, since a new
	// token takes a moment to be known everywhere. Default 1, 2 and 4 s.
	Retry []time.Duration
}

func (l Limits) withDefaults() Limits {
	l.HeadBytes = orDefault(l.HeadBytes, 4<<20)
	l.Commands = orDefault(l.Commands, MaxRefs)
	l.ShallowLines = orDefault(l.ShallowLines, 10000)
	l.PushOptions = orDefault(l.PushOptions, 100)
	l.Stall = orDefault(l.Stall, 60*time.Second)
	l.Upstream = orDefault(l.Upstream, 2*time.Minute)
	l.Ask = min(orDefault(l.Ask, 2*time.Minute), MaxAsk)
	l.Remember = orDefault(l.Remember, 10*time.Minute)
	l.Progress = orDefault(l.Progress, 5*time.Second)
	l.Total = orDefault(l.Total, time.Hour)
	l.Revoke = orDefault(l.Revoke, 5*time.Second)
	l.Grace = orDefault(l.Grace, 3*time.Second)
	l.Pushes = orDefault(l.Pushes, 4)
	l.Mints = orDefault(l.Mints, 30)
	l.Look = orDefault(l.Look, time.Minute)
	l.Kept = orDefault(l.Kept, MaxLooked)
	l.Spool = orDefault(l.Spool, 8<<30)
	l.SpoolRun = orDefault(l.SpoolRun, 2<<30)
	l.SpoolFree = orDefault(l.SpoolFree, 256<<20)
	l.Looks = orDefault(l.Looks, 4)
	l.LooksRun = orDefault(l.LooksRun, 1)
	l.LookWait = orDefault(l.LookWait, 2*time.Minute)
	l.Work = orDefault(l.Work, 16<<30)
	l.WorkWindow = orDefault(l.WorkWindow, 10*time.Minute)
	// A look is never cut short for want of budget: it may do what it holds.
	l.Pack.Work = min(orDefault(l.Pack.Work, pack.DefaultWork), l.Work)
	l.LFSBytes = orDefault(l.LFSBytes, 5<<30)
	l.LFSRunObjects = orDefault(l.LFSRunObjects, 2000)
	l.LFSRunBytes = orDefault(l.LFSRunBytes, 100<<30)
	l.LFSIdle = orDefault(l.LFSIdle, 3*time.Minute)
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
