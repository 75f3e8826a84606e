package proxy

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"postern/caddy-modules/policy"
)

var established = []byte("HTTP/1.1 200 Connection established\r\n\r\n")

// connect answers a CONNECT. It says whether the client may ask again on the
// same connection, which it may after a refusal.
func (f *flow) connect() bool {
	if f.req.hasBody() {
		// net/http would read the first bytes of the tunnel as content.
		return f.malformed(bad("CONNECT with content"))
	}
	t, err := tunnelTarget(f.req.target)
	if err != nil {
		return f.malformed(err)
	}
	ru := f.rule(f.meant(t))
	f.dropUpstream() // of a plain request before
	r, err := f.open(&ru, ProtoConnect)
	if f.isEnded() {
		return false
	}
	if err != nil {
		answer := f.failed(ProtoConnect, &ru, err)
		answer.close = f.req.close
		return f.say(answer)
	}
	f.tunnel(r, ProtoConnect, established)
	return false
}

// checkHello judges the ClientHello of a tunnel that owes one, writes the verdict
// into r, and gives false when the tunnel must end.
func (f *flow) checkHello(r *route) bool {
	if f.s.SNI == SNIOff {
		return true
	}
	var left bool
	r.hello, r.sni, left = f.awaitHello(r.target.Host())
	switch {
	case f.isCut():
		// What ended the flow is the cause, not what the client had sent so far.
		r.hello, r.sni = HelloNone, ""
		return false
	case !r.hello.Refuses():
		// A client that left without a byte was only asking whether the port
		// is open.
		return !left
	case f.s.SNI == SNILog:
		f.s.log.Warn("tunnel would be refused", slog.String("target", r.target.String()), slog.String("reason", r.hello.String()))
		return true
	}
	r.decision.Allowed = false
	f.s.count.denied.Add(1)
	return false
}

// awaitHello reads until the ClientHello is complete or wrong, and leaves its
// bytes in the buffer. left says that the client closed without a word.
func (f *flow) awaitHello(host policy.Host) (v HelloVerdict, name string, left bool) {
	limit := f.s.limits.HelloSize
	f.watch.stage(f.s.limits.Hello, f.stopReading)
	for {
		if b := f.in.bytes(); len(b) > 0 {
			v, name, more := readHello(b, host, limit)
			if !more {
				return v, name, false
			}
		}
		err := f.in.fill(limit)
		switch {
		case err == nil:
		case errors.Is(err, errFull):
			return HelloTooLarge, "", false
		case errors.Is(err, os.ErrDeadlineExceeded):
			// SNILog goes on with the tunnel.
			_ = f.client.SetReadDeadline(time.Time{})
			return HelloTimeout, "", false
		case len(f.in.bytes()) == 0:
			return HelloNone, "", true
		default:
			return HelloMalformed, "", false
		}
	}
}

// accessDenied is the fatal TLS alert of RFC 8446 section 6.2, in a record that
// every version understands. Clients show it as "access denied" instead of an
// end of file without a reason.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// refuseHello ends a tunnel before a byte of it reached the upstream.
func (f *flow) refuseHello(v HelloVerdict) {
	f.drop()
	f.watch.stage(farewell, func() { f.abort(CauseError) })
	alert := false
	switch v {
	case HelloMismatch, HelloNoName, HelloMalformed, HelloTooLarge:
		alert = true
	case HelloNone: // the policy refuses TLS here
		b := f.in.bytes()
		alert = len(b) > 0 && b[0] == recordHandshake
	case HelloOK, HelloNotTLS, HelloTimeout, HelloForeignHost, HelloNotHTTP:
		// Nobody there who would understand an alert.
	}
	if alert {
		if _, err := f.client.Write(accessDenied); err != nil {
			return
		}
	}
	f.linger()
}
