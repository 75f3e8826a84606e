package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"postern/caddy-modules/policy"
)

// flow is one client connection and whatever it is connected to at the moment.
type flow struct {
	s         *Server
	client    net.Conn
	in        reader
	watch     watch
	req       request
	up        *upstream  // of plain requests, kept for the next one
	tunnelled bool       // Usage counts a tunnel
	last      bool       // the request that is read next is the last one
	name      string     // of the client, once somebody asked for it
	yes       *approved  // the last one to a question, where it was for this connection alone
	asked     netip.Addr // made-up, by which the client named the target of the moment
	proto     Proto      // of the plain requests: http, or the tunnel that they come in
	inside    *inside    // set in a tunnel that carries plain requests

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
	approved *approved // by whom, when it was only for this connection
	release  func()    // of the address, nil for nothing
	local    bool      // answered in process: no policy judges it, and no cap counts what it carries
	tunnel   bool      // nobody reads on to be told, so revoking it ends the client too
	begun    time.Time
	// What the trail says of how it was opened, and the number it goes by there.
	id              uint64
	parent          string
	resolved        []netip.Addr
	lookup, connect time.Duration
	// What the first bytes of a tunnel came to.
	hello HelloVerdict
	sni   string
	// cut is the decision of the Recheck that closed a route of plain requests.
	cut *policy.Decision
}

// farewell is how long the last words to a client may take.
const farewell = 5 * time.Second

var errEnded = errors.New("the connection was ended")

func (f *flow) run(handle func(*flow)) {
	f.watch.settled, f.watch.of = f.keepAlive, f
	f.watch.begin(f.s.limits.Header, f.stopReading)
	handle(f)
	f.watch.stop()
	f.drop()
	f.untake()
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	_ = f.client.Close()
	f.in.release()
}

// judge asks a policy about what is open.
func (r *route) judge(set *policy.Set) (policy.Decision, bool) {
	if r.local {
		return r.decision, true
	}
	if r.approved != nil {
		set = set.Approved(r.approved.in(context.Background()))
	}
	if !r.addr.IsValid() && r.parent != "" { // the parent alone knows the address
		d := set.Decide(r.target)
		return d, d.Allowed
	}
	d := set.DecideAddr(r.target, r.addr.Addr())
	return d, d.Allowed
}

// refused is r for the trail, when what a tunnel over it carries was refused. r is what
// the flow is connected to no more, so that nobody changes it.
func (r *route) refused(v HelloVerdict, name string) *route {
	other := *r
	other.hello, other.sni, other.decision.Allowed, other.cut = v, name, false, nil
	return &other
}

// close closes the connection and lets go of what was held for it.
func (r *route) close() {
	_ = r.conn.Close()
	if r.release != nil {
		r.release()
	}
}

// drop closes the upstream connection, if there is one.
func (f *flow) drop() {
	f.mu.Lock()
	r := f.route
	f.route = nil
	f.mu.Unlock()
	if r != nil {
		r.close()
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
		r.close()
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

// isEnded says that the flow was ended from outside, so that nobody is left to
// be told anything.
func (f *flow) isEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// isCut says that something from outside ended the flow or its tunnel.
func (f *flow) isCut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cause != ""
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
