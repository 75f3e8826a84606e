package proxy

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"postern/caddy-modules/policy"
)

// Usage counts what one session has open and has moved, and holds it to the caps
// of its Limits. It belongs to the session and outlives its Servers, so that a
// reload, which makes a new Server, neither forgets nor refills anything. The
// zero Usage caps nothing.
type Usage struct {
	caps                      atomic.Pointer[caps]
	tunnels, requests, number atomic.Int64 // open now, under way now, bytes ever

	mu     sync.Mutex // of the rate
	tokens float64
	last   time.Time
}

type caps struct {
	tunnels, requests, perSecond, bytes int64
}

// NewUsage makes a Usage with the caps of l.
func NewUsage(l Limits) *Usage {
	u := &Usage{}
	u.Set(l)
	return u
}

// Set has the caps of l hold from now on. What is open beyond them stays; bytes
// beyond them end it with the next one that moves.
func (u *Usage) Set(l Limits) {
	u.caps.Store(&caps{int64(l.Tunnels), int64(l.Requests), int64(l.PerSecond), l.Bytes})
}

var uncapped caps

func (u *Usage) limits() *caps {
	if c := u.caps.Load(); c != nil {
		return c
	}
	return &uncapped
}

// beginTunnel counts a tunnel, unless a cap is in the way.
func (u *Usage) beginTunnel(t policy.Target) error {
	c := u.limits()
	if n := u.tunnels.Add(1); c.tunnels > 0 && n > c.tunnels {
		u.tunnels.Add(-1)
		return capped(t, policy.TooManyTunnels, "the session may have "+strconv.FormatInt(c.tunnels, 10)+" tunnels open at a time; close some and try again")
	}
	return nil
}

func (u *Usage) endTunnel() { u.tunnels.Add(-1) }

// beginRequest is beginTunnel for a plain request.
func (u *Usage) beginRequest(t policy.Target) error {
	c := u.limits()
	if err := u.spent(t, c); err != nil {
		return err
	}
	if n := u.requests.Add(1); c.requests > 0 && n > c.requests {
		u.requests.Add(-1)
		return capped(t, policy.TooManyRequests, "the session may have "+strconv.FormatInt(c.requests, 10)+" plain requests under way at a time; let some end and try again")
	}
	return nil
}

func (u *Usage) endRequest() { u.requests.Add(-1) }

// beginConnection takes one of the connections of this second. A session that was
// quiet may open as many at once as it may in a second.
func (u *Usage) beginConnection(t policy.Target) error {
	c := u.limits()
	if err := u.spent(t, c); err != nil {
		return err
	}
	if c.perSecond <= 0 {
		return nil
	}
	most, now := float64(c.perSecond), time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last.IsZero() {
		u.tokens = most
	} else {
		u.tokens = min(most, u.tokens+most*max(0, now.Sub(u.last).Seconds()))
	}
	u.last = now
	if u.tokens < 1 {
		return capped(t, policy.TooFast, "the session may open "+strconv.FormatInt(c.perSecond, 10)+" connections a second; wait a moment and try again")
	}
	u.tokens--
	return nil
}

// spent refuses what comes after the last byte that the session may move.
func (u *Usage) spent(t policy.Target, c *caps) error {
	if c.bytes > 0 && u.number.Load() >= c.bytes {
		return capped(t, policy.TooManyBytes, "the session has moved the "+strconv.FormatInt(c.bytes, 10)+" bytes that it may, and waiting changes nothing; go on in a new session, or have its limit on bytes raised")
	}
	return nil
}

// move counts bytes and says whether the session may go on moving them.
func (u *Usage) move(n int) bool {
	c := u.limits()
	moved := u.number.Add(int64(n))
	return c.bytes <= 0 || moved <= c.bytes
}

func capped(t policy.Target, code policy.Code, reason string) error {
	return &Denied{Target: t, Decision: policy.Refuse(t, code, reason)}
}

// isCap says that a cap is what refused, and not the lists: it may be otherwise
// in a moment.
func isCap(c policy.Code) bool {
	switch c {
	case policy.TooManyTunnels, policy.TooManyRequests, policy.TooFast, policy.TooManyBytes:
		return true
	default:
		return false
	}
}

// count counts bytes that were moved, and breaks the connection when they are more
// than the session may move. What is answered in process is not counted.
func (w *watch) count(n int) {
	if w.of != nil && n > 0 && !w.free.Load() && !w.of.s.Usage.move(n) {
		w.of.overdrawn()
	}
}

// overdrawn breaks both sides: an orderly end would make what was cut off look
// complete.
func (f *flow) overdrawn() {
	f.mu.Lock()
	if f.cause == "" {
		f.cause = CauseBytes
	}
	r := f.route
	f.ended = true
	f.mu.Unlock()
	if r != nil {
		reset(r.conn)
	}
	reset(f.client)
}

// take counts what is about to be opened against the caps, once the policy allows
// it: a refusal by the lists says more than one by a cap. tunnel says that it has
// counted one.
func (f *flow) take(t policy.Target, proto Proto) (tunnel bool, err error) {
	u := f.s.Usage
	if err := u.beginConnection(t); err != nil {
		return false, err
	}
	// A plain request is counted by itself, those in a tunnel are part of it.
	if proto == ProtoHTTP || f.tunnelled {
		return false, nil
	}
	return true, f.takeTunnel(t)
}

func (f *flow) takeTunnel(t policy.Target) error {
	if err := f.s.Usage.beginTunnel(t); err != nil {
		return err
	}
	f.tunnelled = true
	return nil
}

// begin counts a plain request, and one that becomes a tunnel as that too, before an
// approver is asked about it. What the lists refuse is told so, and not of a cap.
func (x *exchange) begin() error {
	f, t := x.f, x.ruling.target
	if x.ruling.local != nil {
		return nil
	}
	if err := f.refuse(&x.ruling); err != nil {
		return err
	}
	if err := f.s.Usage.beginRequest(t); err != nil {
		return err
	}
	x.counted = true
	if !f.req.upgrade || f.tunnelled {
		return nil
	}
	if err := f.takeTunnel(t); err != nil {
		x.end()
		return err
	}
	x.upgrades = true
	return nil
}

// end is for a request that is over, or has become a tunnel.
func (x *exchange) end() {
	if x.counted {
		x.counted = false
		x.f.s.Usage.endRequest()
	}
}

// untake is for what was taken and came to nothing, and for the end.
func (f *flow) untake() {
	if f.tunnelled {
		f.tunnelled = false
		f.s.Usage.endTunnel()
	}
}
