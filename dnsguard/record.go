package dnsguard

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"time"
)

// Verdict sorts records. Its text is stable.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow" // answered, if only with "no such record"
	Deny  Verdict = "deny"  // refused by policy: lists, types, budgets, addresses
	Error Verdict = "error" // malformed, refused before policy was asked
	Fail  Verdict = "fail"  // allowed, but no upstream gave a usable answer
)

// Reasons of refusals that say nothing of what a session wants to reach: stubs ask for
// every type, and for names of their own network.
const (
	ReasonType    = "type"         // a record type that is not handed out
	ReasonSpecial = "special-name" // a name that no upstream may see
)

// ReasonRebind is that of an answer with an address that is not for this session.
const ReasonRebind = "rebind"

// Reasons of verdicts that are the guard's own; the others are the text of a
// policy.Code, or a budget's.
const (
	reasonRebind   = ReasonRebind
	reasonRate     = "rate"         // more queries than Config.QPS allows
	reasonShape    = "shape"        // no well-formed query
	reasonName     = "name"         // the question's name is no host name
	reasonOpcode   = "opcode"       // not a QUERY
	reasonVersion  = "edns-version" // an EDNS version other than 0
	reasonClass    = "class"        // a class other than IN
	reasonType     = ReasonType
	reasonSpecial  = ReasonSpecial
	reasonResolver = "public-resolver" // another resolver, or a canary name
	reasonChain    = "cname"           // a hop of the CNAME chain is refused
	reasonTarget   = "srv-target"      // no target of an SRV answer is allowed
	reasonUpstream = "upstream"        // no usable answer
	reasonClosed   = "closed"          // the session is over
	reasonFull     = "fake-full"       // no fake address is left
	reasonLocal    = "local"           // answered here
	reasonStray    = "off-chain"       // nothing in the answer was about the asked name
)

// Record is one judged query: what an audit log needs and no more. Repeated
// refusals of a name give one record for each reason and five seconds, with the
// number left out before it.
type Record struct {
	Time        time.Time
	Session     string
	Proto       string // "udp", "tcp" or "proxy"
	Name        string // canonical; of a malformed name its escaped text, at most 100 octets
	Type        string // "A", "TYPE65399"
	Verdict     Verdict
	Reason      string
	Code        string // of the policy's decision about an address, with ReasonRebind
	Detail      string // one sentence for a person
	Rule        string // canonical text of the deciding rule
	Source      string // where that rule stands
	Rcode       string // of the answer; "" for the proxies
	Answers     []netip.Addr
	Upstream    string
	Duration    time.Duration
	Cached      bool
	HighEntropy bool // the part under a wildcard looks like packed data
	Suppressed  int  // refusals not recorded since the last record
}

// LogValue groups the fields in the order in which people read them. Names are
// quoted by every slog handler, and hold printable ASCII only.
func (r Record) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("session", r.Session),
		slog.String("proto", r.Proto),
		slog.String("name", r.Name),
		slog.String("type", r.Type),
		slog.String("verdict", string(r.Verdict)),
		slog.Duration("duration", r.Duration),
	}
	for _, a := range []struct{ key, value string }{
		{"reason", r.Reason},
		{"detail", r.Detail},
		{"rule", r.Rule},
		{"source", r.Source},
		{"rcode", r.Rcode},
		{"upstream", r.Upstream},
	} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.key, a.value))
		}
	}
	if len(r.Answers) > 0 {
		attrs = append(attrs, slog.Any("answers", r.Answers))
	}
	if r.Cached {
		attrs = append(attrs, slog.Bool("cached", true))
	}
	if r.HighEntropy {
		attrs = append(attrs, slog.Bool("high_entropy", true))
	}
	if r.Suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", r.Suppressed))
	}
	return slog.GroupValue(attrs...)
}

const (
	quietFor   = 5 * time.Second
	quietNames = 256 // different refusals recorded within quietFor
	maxShown   = 100 // octets of a hostile name that are recorded
)

// quiet decides which refusals are recorded: each name and reason once in five
// seconds, and no more than quietNames of them, so that a loop over names fills
// neither a disk nor this map. What is left out is counted. Its owner locks.
type quiet struct {
	until time.Time
	seen  map[string]struct{}
	left  int
}

// admit reports whether a refusal is to be recorded, and how many were not
// since the last one that was.
func (q *quiet) admit(name, reason string, now time.Time) (ok bool, left int) {
	if !now.Before(q.until) {
		q.until = now.Add(quietFor)
		q.seen = make(map[string]struct{})
	}
	key := reason + " " + name
	if _, seen := q.seen[key]; seen || len(q.seen) >= quietNames {
		q.left++
		return false, 0
	}
	q.seen[key] = struct{}{}
	left, q.left = q.left, 0
	return true, left
}

// shown makes a hostile name fit for a record.
func shown(name string) string {
	if len(name) > maxShown {
		name = name[:maxShown]
	}
	quoted := strconv.QuoteToASCII(name)
	return quoted[1 : len(quoted)-1]
}

// report gives a record to whom the configuration names.
func report(ctx context.Context, c *Config, r Record) {
	if c.Record != nil {
		c.Record(r)
	}
	// A refusal is detail here: Record is for those who are told of refusals. What could
	// not be read or answered has no other line.
	level := slog.LevelDebug
	if r.Verdict == Error || r.Verdict == Fail {
		level = slog.LevelInfo
	}
	if c.Log.Enabled(ctx, level) {
		c.Log.LogAttrs(ctx, level, "dns query", slog.Any("dns", r))
	}
}
