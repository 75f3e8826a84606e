package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"postern/caddy-modules/policy"
)

// flow is one client connection and whatever it is connected to at the moment.
type flow struct {
	s      *Server
	client net.Conn
	in     reader
	watch  watch
	req    request
	up     *upstream // of plain requests, kept for the next one
	last   bool      // the request that is read next is the last one
	name   string    // of the client, once somebody asked for it

	mu sync.Mutex
	// route is where the client is connected to, nil for nowhere. It is what
	// Recheck judges.
	route *route
	// cause is why the flow was ended from outside, "" while it was not; by is
	// the decision of a CauseRevoked.
	cause Cause
	by    policy.Decision
	ended bool
}

// route is one connection to an upstream.
type route struct {
	conn     net.Conn
	target   policy.Target
	addr     netip.AddrPort
	decision policy.Decision
	local    bool
	tunnel   bool // bytes are relayed blindly, so revoking it ends the client too
	// cut is the decision of the Recheck that closed a route of plain requests.
	cut *policy.Decision
}

// farewell is how long the last words to a client may take.
const farewell = 5 * time.Second

var errEnded = errors.New("the connection was ended")

func (f *flow) run(handle func(*flow)) {
	f.watch.settled = f.keepAlive
	f.watch.begin(f.s.limits.Header, f.stopReading)
	handle(f)
	f.watch.stop()
	f.drop()
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	_ = f.client.Close()
	f.in.release()
}

// open connects to a target, in process or through the gate. The route is
// attached: from here on Recheck and Close reach it.
func (f *flow) open(t policy.Target) (*route, error) {
	limit := f.s.limits.Dial
	// The dial has its own limit; this one only covers a dial that ignores it.
	f.watch.stage(limit+farewell, func() { f.abort(CauseError) })
	r := &route{target: t}
	if dial := f.local(t); dial != nil {
		ctx, cancel := context.WithTimeout(f.s.ctx, limit)
		defer cancel()
		conn, err := dial(ctx)
		if err != nil {
			return nil, asDialError(ctx, t, err)
		}
		r.conn, r.local, r.decision = conn, true, localDecision
		return r, f.attach(r)
	}
	conn, opened, err := f.s.Gate.open(f.s.ctx, t, limit)
	if err != nil {
		return nil, err
	}
	r.conn, r.addr, r.decision = conn, opened.Addr, opened.Decision
	return r, f.attach(r)
}

// localDecision stands in a record for a target that no policy judged.
var localDecision = policy.Decision{Allowed: true, Code: policy.Allow, Source: "built-in"}

// local gives the dial of a target that is answered in process, nil for others.
func (f *flow) local(t policy.Target) func(context.Context) (net.Conn, error) {
	if f.s.Local == nil {
		return nil
	}
	dial, ok := f.s.Local(t)
	if !ok {
		return nil
	}
	return dial
}

// attach makes r the flow's route. The policy may have changed between the
// gate's look at it and now, with Recheck already past this flow; so it is asked
// once more now that Recheck would find it.
func (f *flow) attach(r *route) error {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		_ = r.conn.Close()
		return errEnded
	}
	f.route = r
	f.mu.Unlock()
	if d, ok := r.judge(f.s.Gate.policy()); !ok {
		f.drop()
		return &Denied{Target: r.target, Decision: d}
	}
	return nil
}

// judge asks a policy about what is open.
func (r *route) judge(set *policy.Set) (policy.Decision, bool) {
	if r.local {
		return r.decision, true
	}
	d := set.DecideAddr(r.target, r.addr.Addr())
	return d, d.Allowed
}

// drop closes the upstream connection, if there is one.
func (f *flow) drop() {
	f.mu.Lock()
	r := f.route
	f.route = nil
	f.mu.Unlock()
	if r != nil {
		_ = r.conn.Close()
	}
}

// recheck cuts what set refuses. A plain request loses its upstream and is
// answered; a tunnel is broken on both sides, with a reset: an orderly end would
// make what was cut off look complete.
func (f *flow) recheck(set *policy.Set) {
	f.mu.Lock()
	r := f.route
	if r == nil || f.ended {
		f.mu.Unlock()
		return
	}
	d, ok := r.judge(set)
	if ok {
		f.mu.Unlock()
		return
	}
	if !r.tunnel {
		f.route, r.cut = nil, &d
		f.mu.Unlock()
		_ = r.conn.Close()
		return
	}
	f.cause, f.by = CauseRevoked, d
	f.mu.Unlock()
	reset(r.conn)
	reset(f.client)
}

// abort ends both sides at once, for the reason that came first.
func (f *flow) abort(cause Cause) {
	f.mu.Lock()
	if f.cause == "" {
		f.cause = cause
	}
	r := f.route
	f.ended = true
	f.mu.Unlock()
	if r != nil {
		_ = r.conn.Close()
	}
	_ = f.client.Close()
}

// why is the cause that ended the flow from outside, "" for none.
func (f *flow) why() (Cause, policy.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cause, f.by
}

// usable says that r is still what the flow is connected to, and the decision
// that took it away otherwise.
func (f *flow) usable(r *route) (bool, *policy.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.route == r && !f.ended, r.cut
}

// past is a deadline that has passed: reads and writes return at once.
var past = time.Unix(1, 0)

// stopReading makes the pending read of the client fail as overdue, so that the
// goroutine in it can still answer.
func (f *flow) stopReading() { _ = f.client.SetReadDeadline(past) }

// keepAlive turns on TCP keep-alive probes for connections that live long enough
// to be forgotten by a NAT or to lose their peer.
func (f *flow) keepAlive() {
	f.mu.Lock()
	r := f.route
	f.mu.Unlock()
	probe(f.client)
	if r != nil {
		probe(r.conn)
	}
}

func probe(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 30 * time.Second, Count: 4})
	}
}

// reset closes a connection with RST instead of FIN.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// say writes an answer of the proxy itself. It says whether the client can be
// asked for another request.
func (f *flow) say(r reply) bool {
	r.head = f.req.method == "HEAD"
	f.watch.stage(farewell, func() { f.abort(CauseError) })
	b := getLarge()
	defer putLarge(b)
	_, err := f.client.Write(r.append(b[:0]))
	if err != nil {
		return false
	}
	if r.close {
		f.linger()
	}
	return !r.close
}

// linger lets the client read the last answer. Closing while it still sends
// would make the kernel reset the connection, and throw away what the client has
// not read yet.
func (f *flow) linger() {
	const most, patience = 256 << 10, time.Second
	if cw, ok := f.client.(closeWriter); !ok || cw.CloseWrite() != nil {
		return
	}
	f.watch.stage(patience, f.stopReading)
	_ = f.client.SetReadDeadline(time.Time{})
	b := getSmall()
	defer putSmall(b)
	for n := 0; n < most; {
		m, err := f.client.Read(b[:])
		if err != nil {
			return
		}
		n += m
	}
}

type closeWriter interface{ CloseWrite() error }

// malformed answers what could not be read.
func (f *flow) malformed(err error) bool {
	f.noteMalformed(err)
	return f.say(malformedReply(err))
}

func (f *flow) noteMalformed(err error) {
	f.s.count.malformed.Add(1)
	f.s.log.Debug("malformed request", slog.String("client", f.clientName()), slog.String("error", printable(err.Error())))
}

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
	f.s.Gate.Record(r)
}

// failed counts and records why a target was not opened, and gives the answer
// for it.
func (f *flow) failed(proto Proto, t policy.Target, err error) reply {
	var denied *Denied
	if errors.As(err, &denied) {
		f.s.count.denied.Add(1)
		f.record(Record{Kind: KindDecision, Proto: proto, Target: t, Decision: denied.Decision})
		return deniedReply(verdict{target: t, decision: denied.Decision})
	}
	f.s.count.failed.Add(1)
	var dial *DialError
	if !errors.As(err, &dial) {
		dial = &DialError{Target: t, Op: OpConnect, Err: err}
	}
	// The policy allowed it, and the trail says so; why nothing came of it is
	// the network's business and in the log.
	r := Record{Kind: KindDecision, Proto: proto, Target: t, Decision: localDecision, Local: f.local(t) != nil}
	if !r.Local {
		r.Decision = f.s.Gate.policy().Decide(t)
	}
	f.record(r)
	f.s.log.Info("upstream not reached", slog.String("target", t.String()), slog.String("reason", dial.code()), slog.String("error", printable(dial.Error())))
	return failedReply(dial)
}
