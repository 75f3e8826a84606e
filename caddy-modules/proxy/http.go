package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
)

// serveHTTP reads one request after the other. Every one is parsed and judged as
// if it were the first.
func (f *flow) serveHTTP() {
	f.proto = ProtoHTTP
	for first := true; ; first = false {
		if !f.nextRequest(first) {
			return
		}
		var again bool
		switch {
		case !f.loggedIn():
			again = f.demandLogin()
		case f.req.method == http.MethodConnect:
			again = f.connect()
		default:
			again = f.forward()
		}
		if !again {
			return
		}
	}
}

// nextRequest reads a head into f.req. When it gives false the connection is
// over, and whoever could be told something was.
func (f *flow) nextRequest(first bool) bool {
	f.req.method = ""
	l := &f.s.limits
	if !first {
		f.skipLineEnds()
	}
	waiting := len(f.in.bytes()) == 0
	switch {
	case first:
		// The stage that the flow began with.
	case waiting:
		f.in.releaseIfEmpty()
		f.watch.stage(l.KeepAlive, f.stopReading)
	default:
		f.watch.stage(l.Header, f.stopReading)
	}
	for {
		if f.inside != nil && !mayBeHTTP(f.in.bytes()) {
			return f.refuseInside(HelloNotHTTP, "")
		}
		n, err := scanHead(f.in.bytes(), l)
		if err != nil {
			return f.malformed(err)
		}
		if n > 0 {
			if err := f.req.parseHead(f.in.bytes()[:n]); err != nil {
				return f.malformed(err)
			}
			f.in.discard(n)
			f.req.close = f.req.close || f.last
			return true
		}
		if err := f.in.fill(l.RequestLine + l.HeaderBlock + 2); err != nil {
			return f.headEnded(err, waiting)
		}
		if !first {
			f.skipLineEnds()
		}
		if waiting && len(f.in.bytes()) > 0 {
			waiting = false
			if !first {
				f.watch.stage(l.Header, f.stopReading)
			}
		}
	}
}

// skipLineEnds drops empty lines before a request line, which old clients send
// after a body (RFC 9112 section 2.2).
func (f *flow) skipLineEnds() {
	const most = 4
	for range most {
		if b := f.in.bytes(); len(b) == 0 || b[0] != '\r' && b[0] != '\n' {
			return
		}
		f.in.discard(1)
	}
}

// headEnded is for a head that will never be complete.
func (f *flow) headEnded(err error, waiting bool) bool {
	switch {
	case waiting:
		return false // nothing was asked
	case errors.Is(err, os.ErrDeadlineExceeded):
		return f.malformed(&headError{http.StatusRequestTimeout, "the header did not end in time"})
	case errors.Is(err, io.EOF):
		return f.malformed(bad("the connection ended inside the header"))
	default:
		return false
	}
}
