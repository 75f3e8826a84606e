package proxy

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"postern/caddy-modules/policy"
)

// exchange is one plain request and its answer.
type exchange struct {
	f      *flow
	ruling ruling
	path   string
	req    http.Request // what ReadResponse must know
	body   content
	// out holds the request until its answer begins, then the answer.
	out  []byte
	up   *upstream
	sent *sender // content that did not fit beside the head, nil for none
	late atomic.Bool
	lookout
	// What the trail says of it: content bytes both ways, and why it ended.
	bytesUp, bytesDown int64
	cause              Cause
	// What the caps count: a request under way, and a tunnel that it asks for.
	counted, upgrades bool
}

// forward answers a plain request. It says whether the client may send another.
func (f *flow) forward() bool {
	t, path, err := plainTarget(f.req.method, f.req.target)
	if err != nil {
		return f.malformed(err)
	}
	return f.forwardTo(f.meant(t), path)
}

func (f *flow) forwardTo(t policy.Target, path string) bool {
	x := exchange{f: f, path: path, body: newContent(&f.in, &f.req)}
	if err := x.body.check(); err != nil {
		return f.malformed(err)
	}
	x.ruling = f.rule(t)
	if d, address, yes := f.pushGoesElsewhere(&x.ruling, path); yes {
		return f.refusePush(t, d, address)
	}
	if f.inside != nil {
		f.inside.told = true // from here on the request is in the trail
	}
	if refused := x.begin(); refused != nil {
		answer := f.failed(f.proto, &x.ruling, refused)
		answer.close = f.req.close || f.req.hasBody()
		return f.say(answer)
	}
	defer x.end()
	x.req.Method = f.req.method
	buf := getLarge()
	defer putLarge(buf)
	x.out = buf[:0]
	again := x.run()
	if x.upgrades {
		f.untake()
	}
	return again
}

func (x *exchange) run() bool {
	f := x.f
	begun := time.Now()
	//nolint:bodyclose // closing would read the rest of an endless body; the connection is closed instead
	resp, opened, err := x.request()
	if !opened {
		if f.isEnded() {
			return false
		}
		answer := f.failed(f.proto, &x.ruling, err)
		// Content that nobody will read is not waited for.
		answer.close = f.req.close || f.req.hasBody()
		return f.say(answer)
	}
	f.s.count.requests.Add(1)
	var again bool
	switch {
	case err != nil:
		x.stopLooking()
		again = x.broken(err)
	case resp.StatusCode == http.StatusSwitchingProtocols:
		x.stopLooking()
		x.switchProtocols(resp)
	default:
		again = x.answer(resp)
	}
	if !again && f.up != nil {
		f.dropUpstream()
	}
	f.recordClose(x.up.route, f.proto, begun, x.bytesUp, x.bytesDown, x.cause)
	return again
}

// request connects, sends, and waits for the head of the final answer. opened
// says that a connection was there, so that the rest is the exchange's business.
func (x *exchange) request() (resp *http.Response, opened bool, err error) {
	f := x.f
	for fresh := false; ; fresh = true {
		if fresh { // time has passed
			x.ruling = f.rule(x.ruling.target)
		}
		up, err := f.connectUpstream(&x.ruling, fresh)
		if err != nil {
			return nil, opened, err
		}
		x.up = up
		if !opened {
			opened = true
			f.recordDecision(up.route, f.proto)
			x.out = f.req.appendHead(x.out, x.ruling.target, x.path)
			if err := x.takeAhead(); err != nil {
				return nil, true, err
			}
		}
		f.watch.flowing(f.s.limits.Idle, f.s.limits.Total, func(Cause) { x.expire(up) })
		up.meter.got = 0
		var n int
		n, err = up.conn.Write(x.out)
		f.watch.count(n)
		if err == nil {
			x.send()
			x.look()
			resp, err = x.awaitResponse()
		}
		// An idle connection that its server was just closing gives an error
		// before the first byte. Once, and only what does no harm twice.
		if err == nil || !up.reused || up.meter.got > 0 || x.sent != nil || !f.req.replayable() || x.late.Load() {
			return resp, true, err
		}
		x.stopLooking()
	}
}

// takeAhead puts content that came with the head right behind it, so that small
// requests leave in one packet and need no second goroutine.
func (x *exchange) takeAhead() error {
	const reserve = 64 // for the framing of a chunk and the end of content
	for !x.body.done() {
		room := cap(x.out) - len(x.out) - reserve
		if room < 512 {
			return nil
		}
		data, err := x.body.take(room)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			break
		}
		x.bytesUp += int64(len(data))
		if x.body.coding {
			x.out = appendChunk(x.out, data)
		} else {
			x.out = append(x.out, data...)
		}
	}
	if x.body.coding && x.body.done() {
		x.out = x.body.appendEnd(x.out)
	}
	return nil
}

// expire ends an exchange that has stalled: both sides, but in a way that leaves
// the client's connection usable for saying so.
func (x *exchange) expire(up *upstream) {
	x.late.Store(true)
	_ = up.conn.Close()
	_ = x.f.client.SetDeadline(past)
}

// broken answers an exchange that ended before the final answer began.
func (x *exchange) broken(err error) bool {
	f := x.f
	sendErr := x.stopSending()
	_, cut := f.usable(x.up.route)
	f.watch.stage(farewell, func() { f.abort(CauseError) }) // expire is over, or never begins
	_ = f.client.SetDeadline(time.Time{})
	x.cause = CauseError
	bad, ok := errors.AsType[*headError](errors.Join(err, sendErr))
	switch {
	case ok:
		f.dropUpstream()
		return f.malformed(bad)
	case f.isEnded():
		return false
	case isDenied(err) || isDial(err):
		// The second connection, in place of one that was dead, failed.
		answer := f.failed(f.proto, &x.ruling, err)
		answer.close = true
		return f.say(answer)
	case cut != nil:
		f.s.count.denied.Add(1)
		answer := deniedReply(verdict{target: x.ruling.target, decision: *cut})
		answer.close = true
		return f.say(answer)
	case x.late.Load() && x.sent != nil && x.sent.reading.Load():
		x.cause = CauseIdle
		f.s.count.malformed.Add(1)
		return f.say(timeoutReply())
	case errors.Is(sendErr, errClientGone), x.gone.Load():
		return false
	}
	dial := &DialError{Target: x.ruling.target, Op: OpExchange, Err: err, Late: x.late.Load() || errors.Is(err, os.ErrDeadlineExceeded)}
	if dial.Late {
		x.cause = CauseIdle
	}
	f.s.count.failed.Add(1)
	f.s.log.Info("exchange failed", slog.String("target", x.ruling.target.String()), slog.String("reason", dial.code()), slog.String("error", printable(err.Error())))
	answer := failedReply(dial)
	answer.close = true
	return f.say(answer)
}

// errClientGone is for content that ended before its time.
var errClientGone = errors.New("the client closed the connection inside its content")

func isDial(err error) bool {
	_, ok := errors.AsType[*DialError](err)
	return ok
}

// readContent reads more of the client's content into the buffer.
func (f *flow) readContent() error {
	err := f.in.fill(largeSize)
	switch {
	case err == nil:
		f.watch.touch()
		return nil
	case errors.Is(err, io.EOF):
		return errClientGone
	default:
		return err
	}
}
