package proxy

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
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

// serial numbers what is judged, over all servers of the process.
var serial atomic.Uint64

// record hands a record to whoever asked for records.
func (f *flow) record(r Record) {
	if f.s.Gate.Record == nil {
		return
	}
	r.Time = time.Now()
	if r.Conn == 0 {
		r.Conn = serial.Add(1)
	}
	r.Client = f.clientName()
	r.AskedFor = f.asked
	f.s.Gate.Record(r)
}

// recordDecision records the verdict on what was opened.
func (f *flow) recordDecision(r *route, proto Proto) {
	if f.s.Gate.Record == nil {
		return
	}
	r.id = serial.Add(1)
	f.record(Record{
		Kind: KindDecision, Conn: r.id, Proto: proto, Target: r.target, Decision: r.decision,
		Addr: r.addr, SNI: r.sni, Hello: r.hello, Local: r.local,
		Resolved: r.resolved, Parent: r.parent, Lookup: r.lookup, Connect: r.connect,
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
		Kind: KindClose, Conn: r.id, Proto: proto, Target: r.target, Decision: decision,
		Addr: r.addr, SNI: r.sni, Hello: r.hello, Local: r.local,
		Resolved: r.resolved, Parent: r.parent, Lookup: r.lookup, Connect: r.connect,
		BytesUp: up, BytesDown: down, Duration: time.Since(begun), Cause: cause,
	})
	r.lookup, r.connect = 0, 0 // the next request finds it open
}

// failed counts and records why a target was not opened, and gives the answer
// for it.
func (f *flow) failed(proto Proto, ru *ruling, err error) reply {
	t := ru.target
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
	f.record(Record{
		Kind: KindDecision, Proto: proto, Target: t, Decision: ru.decision, Local: ru.local != nil,
		Resolved: dial.resolved, Parent: dial.parent, Failed: dial.code(),
	})
	f.s.log.Info("upstream not reached", slog.String("target", t.String()), slog.String("reason", dial.code()), slog.String("error", printable(dial.Error())))
	return failedReply(dial)
}

// shownAddrs are the addresses that the trail has of an answer.
func shownAddrs(t policy.Target, addrs []netip.Addr) []netip.Addr {
	if t.Host().Name() == "" {
		return nil
	}
	if len(addrs) > maxResolved {
		return slices.Clone(addrs[:maxResolved]) // and let go of the others
	}
	return addrs
}
