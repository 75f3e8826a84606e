package proxy

import (
	"errors"
	"os"

	"postern/caddy-modules/policy"
)

// carriage is what a tunnel may carry.
type carriage uint8

const (
	// carriesAnything is relayed unseen: an address that a rule names, a rule
	// that says `tcp`, a target that is answered in process.
	carriesAnything carriage = iota
	// carriesTLS must begin with a ClientHello for the host: port 443.
	carriesTLS
	// carriesHTTP is requests for the host, each judged, or TLS as on 443: port 80
	// of a name.
	carriesHTTP
	// carriesOther is anything, but if it is TLS it is held to what holds on 443:
	// any other port of a name.
	carriesOther
)

// carriage says what the tunnel over r may carry. The port tells only what is
// expected; that it is the right host is asked of the bytes, wherever they name
// one. Else a rule without ports, which means 80 as well, would open every other
// tenant of a CDN in the clear.
func (f *flow) carriage(r *route) carriage {
	_, literal := r.target.Host().Addr()
	switch {
	case r.local || r.decision.TCP:
		return carriesAnything
	case r.target.Scheme() == policy.SchemeTLS:
		return carriesTLS
	case literal:
		return carriesAnything
	case r.target.Port() == httpPort:
		return carriesHTTP
	default:
		return carriesOther
	}
}

// tunnel tells the client that it is connected, looks at what the tunnel carries
// where there is something to see, and relays until the end. It keeps little on
// its stack: a tunnel may be idle for hours, and there may be thousands.
func (f *flow) tunnel(r *route, proto Proto, welcome []byte) {
	f.s.count.tunnels.Add(1)
	f.s.count.openTunnels.Add(1)
	defer f.s.count.openTunnels.Add(-1)
	f.mu.Lock()
	r.tunnel = true
	f.mu.Unlock()
	var err error
	if len(welcome) > 0 {
		f.watch.stage(farewell, func() { f.abort(CauseError) })
		_, err = f.client.Write(welcome)
	}
	goOn, ended := err == nil, CauseDone
	var look func() bool
	switch what := f.carriage(r); {
	case !goOn:
	case what == carriesTLS:
		goOn = f.checkHello(r)
	case what == carriesHTTP:
		ended, goOn = f.awaitFirst()
		switch {
		case !goOn:
		case f.in.bytes()[0] != recordHandshake:
			f.serveInside(r, proto)
			return
		default:
			goOn = f.turnsToTLS(r) && f.checkHello(r)
		}
	case what == carriesOther && f.s.SNI != SNIOff:
		look = func() bool {
			ok := f.checkFirst(r)
			f.recordDecision(r, proto)
			return ok
		}
	}
	// One decision in any case: refused for what it carries, or allowed, even
	// when the client was gone before it could be told.
	if look == nil {
		f.recordDecision(r, proto)
	}
	var up, down int64
	cause := CauseError
	switch {
	case goOn:
		up, down, cause = f.exchangeBytes(r, look)
		if cause == CauseRefused {
			f.refuseHello(r.hello)
		}
	case !r.decision.Allowed:
		cause = CauseRefused
		f.refuseHello(r.hello)
	case err == nil:
		cause = ended
	}
	f.recordClose(r, proto, r.begun, up, down, cause)
}

// turnsToTLS asks the policy again about a tunnel to port 80 in which TLS comes: a rule
// may be for plain HTTP alone. From here on Recheck asks about TLS too.
func (f *flow) turnsToTLS(r *route) bool {
	t, err := policy.NewTarget(r.target.Host(), r.target.Port(), policy.SchemeTLS)
	if err != nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.target = t
	d, ok := r.judge(f.s.Gate.policy())
	r.decision = d
	if !ok {
		f.s.count.denied.Add(1)
	}
	return ok
}

// awaitFirst waits for the first byte of a tunnel, as for the next request of a
// kept connection. When none came, cause says why the tunnel ends.
func (f *flow) awaitFirst() (cause Cause, came bool) {
	if len(f.in.bytes()) > 0 {
		return "", true
	}
	f.watch.stage(f.s.limits.KeepAlive, f.stopReading)
	err := f.in.fillLater(largeSize)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return CauseIdle, false
	}
	return CauseDone, err == nil
}

// checkFirst looks at the first bytes that a client sends in a tunnel to some
// other port, whenever they come, and judges them if they are TLS. Until then
// only the way down is open. The stage of the watch is that of the relay, before
// and after.
func (f *flow) checkFirst(r *route) bool {
	if len(f.in.bytes()) == 0 && f.in.fillLater(smallSize) != nil {
		return true // an end without a word, which the relay passes on
	}
	if f.in.bytes()[0] != recordHandshake {
		return true
	}
	defer f.flowing()
	if len(f.in.bytes()) == 1 {
		f.watch.stage(f.s.limits.Hello, f.stopReading)
		_ = f.in.fill(smallSize) // an error comes again where it is judged
	}
	if b := f.in.bytes(); len(b) > 1 && b[1] != recordVersion {
		return true // another protocol, with the same first byte
	}
	return f.checkHello(r)
}

// flowing is the stage of the watch for bytes that are relayed.
func (f *flow) flowing() { f.watch.flowing(f.s.limits.Idle, f.s.limits.Total, f.abort) }

// exchangeBytes relays, beginning with what the client sent ahead. look, if there
// is one, says whether that may go up.
func (f *flow) exchangeBytes(r *route, look func() bool) (up, down int64, cause Cause) {
	f.flowing()
	f.req = request{} // nothing of the head is needed any more
	up, down, err := relay(f.client, r.conn, &f.watch, func() (n int64, err error) {
		if look != nil && !look() {
			return 0, errRefused
		}
		if b := f.in.bytes(); len(b) > 0 {
			var m int
			m, err = r.conn.Write(b)
			n = int64(m)
			f.watch.count(m)
		}
		f.in.discard(len(f.in.bytes()))
		f.in.release()
		return n, err
	})
	switch {
	case err == nil:
		return up, down, CauseDone
	case errors.Is(err, errRefused):
		return up, down, CauseRefused
	default:
		return up, down, CauseError
	}
}
