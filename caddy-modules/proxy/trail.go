package proxy

import (
	"errors"
	"log/slog"
	"time"

	"postern/caddy-modules/policy"
)

// clientName is the remote address of the client, written out when it is first
// asked for.
func (f *flow) clientName() string {
	if f.name == "" {
		f.name = "unknown"
		if a := f.client.RemoteAddr(); a != nil && a.String() != "" {
			f.name = a.String()
		}
	}
	return f.name
}

// record hands a record to whoever asked for records.
func (f *flow) record(r Record) {
	if f.s.Gate.Record == nil {
		return
	}
	r.Time = time.Now()
	r.Client = f.clientName()
	r.AskedFor = f.asked
	f.s.Gate.Record(r)
}

// recordDecision records the verdict on what was opened.
func (f *flow) recordDecision(r *route, proto Proto) {
	if f.s.Gate.Record == nil {
		return
	}
	f.record(Record{
		Kind: KindDecision, Proto: proto, Target: r.target, Decision: r.decision,
		Addr: r.addr, SNI: r.sni, Hello: r.hello, Local: r.local,
	})
}

// recordClose records and counts the end of what was opened. An end that came
// from outside overrides the cause that the relay saw.
func (f *flow) recordClose(r *route, proto Proto, begun time.Time, up, down int64, cause Cause) {
	f.s.count.up.Add(up)
	f.s.count.down.Add(down)
	if f.s.Gate.Record == nil {
		return
	}
	decision := r.decision
	f.mu.Lock()
	if f.cause != "" {
		cause = f.cause
	}
	switch {
	case r.cut != nil:
		cause, decision = CauseRevoked, *r.cut
	case f.cause == CauseRevoked:
		decision = f.by
	}
	f.mu.Unlock()
	f.record(Record{
		Kind: KindClose, Proto: proto, Target: r.target, Decision: decision,
		Addr: r.addr, SNI: r.sni, Hello: r.hello, Local: r.local,
		BytesUp: up, BytesDown: down, Duration: time.Since(begun), Cause: cause,
	})
}

// failed counts and records why a target was not opened, and gives the answer
// for it.
func (f *flow) failed(proto Proto, t policy.Target, err error) reply {
	if denied, ok := errors.AsType[*Denied](err); ok {
		f.s.count.denied.Add(1)
		f.record(Record{Kind: KindDecision, Proto: proto, Target: t, Decision: denied.Decision})
		return deniedReply(verdict{target: t, decision: denied.Decision})
	}
	f.s.count.failed.Add(1)
	dial, ok := errors.AsType[*DialError](err)
	if !ok {
		dial = &DialError{Target: t, Op: OpConnect, Err: err}
	}
	// The policy allowed it, and the trail says so; why nothing came of it is
	// the network's business and in the log.
	r := Record{Kind: KindDecision, Proto: proto, Target: t, Decision: dial.decision, Local: f.local(t) != nil}
	switch {
	case r.Local:
		r.Decision = localDecision
	case dial.decision.Target().IsZero():
		r.Decision = f.s.Gate.policy().Decide(t)
	}
	f.record(r)
	f.s.log.Info("upstream not reached", slog.String("target", t.String()), slog.String("reason", dial.code()), slog.String("error", printable(dial.Error())))
	return failedReply(dial)
}
