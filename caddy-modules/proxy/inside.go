package proxy

import "bytes"

// inside is a tunnel to port 80 of a name. Clients reach http:// through it:
// undici, which is in node, always does, and every client of a SOCKS proxy. Its
// requests are read, judged and forwarded as if they had come in absolute-form,
// so that the Host which chooses the tenant of a CDN is the one that was judged.
type inside struct {
	route *route // the connection that the tunnel was opened with
	proto Proto
	told  bool // the trail has a record of something in it
}

// serveInside answers one request after the other. The first byte is here.
func (f *flow) serveInside(r *route, proto Proto) {
	f.inside, f.proto = &inside{route: r, proto: proto}, proto
	f.useUpstream(r)
	for f.nextRequest(false) {
		// While a request is under way its client is told what happens; between
		// two requests a tunnel that is revoked can only be cut.
		f.setTunnel(false)
		again := f.forwardInside()
		f.setTunnel(true)
		if !again {
			break
		}
	}
	if !f.inside.told {
		f.recordDecision(r, proto)
		f.recordClose(r, proto, r.begun, 0, 0, CauseError)
	}
}

func (f *flow) setTunnel(is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.route != nil {
		f.route.tunnel = is
	}
}

// forwardInside judges one request by the host that the tunnel is for.
func (f *flow) forwardInside() bool {
	judged := f.inside.route.target
	path, same, err := insideTarget(&f.req, judged)
	switch {
	case err != nil:
		return f.malformed(err)
	case !same:
		return f.refuseInside(HelloForeignHost, f.req.host)
	default:
		return f.forwardTo(judged, path)
	}
}

// refuseInside ends the tunnel with an answer. Nothing of the request has gone to
// the upstream.
func (f *flow) refuseInside(v HelloVerdict, host string) bool {
	f.dropUpstream()
	in := f.inside
	in.told = true
	refused := in.route.refused(v, host)
	f.s.count.denied.Add(1)
	f.recordDecision(refused, in.proto)
	answer := deniedReply(verdict{target: refused.target, decision: refused.decision, hello: v})
	answer.close = true
	f.say(answer)
	f.recordClose(refused, in.proto, refused.begun, 0, 0, CauseRefused)
	return false
}

// maxMethod bounds a method while it is not known whether it is one.
const maxMethod = 64

// mayBeHTTP says that b can still become a request of HTTP/1. Each byte is judged
// as it comes: a client that speaks something else and waits for an answer to its
// first line is told at once.
func mayBeHTTP(b []byte) bool {
	n := 0
	for n < len(b) && isToken(b[n]) {
		n++
	}
	switch {
	case n == len(b):
		return n <= maxMethod
	case n == 0 || n > maxMethod || b[n] != ' ':
		return false
	}
	line, _, ended := bytes.Cut(b, []byte("\n"))
	if !ended {
		return true
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	return bytes.HasSuffix(line, []byte(" HTTP/1.1")) || bytes.HasSuffix(line, []byte(" HTTP/1.0"))
}
