package proxy

import (
	"net"
	"net/netip"

	"postern/caddy-modules/policy"
)

// ServeTransparent takes connections of clients that know of no proxy: the name
// they asked for was answered with a made-up address, and that address is where
// they connect to. Which name it stands for is asked of NameOf, and from there on
// the connection is a tunnel like that of a CONNECT, without the welcome. The
// port is the one that was connected to. Like ServeHTTP in the rest.
func (s *Server) ServeTransparent(ln net.Listener) error {
	return s.serve(ln, (*flow).serveTransparent, nil)
}

// serveTransparent runs one such connection.
func (f *flow) serveTransparent() {
	f.proto = ProtoTransparent
	t, ok := f.destination()
	if !ok {
		return
	}
	ru := f.rule(t)
	r, err := f.open(&ru, ProtoTransparent)
	if f.isEnded() {
		return
	}
	if err != nil {
		f.turnBack(t, f.failed(ProtoTransparent, &ru, err), isDenied(err))
		return
	}
	f.tunnel(r, ProtoTransparent, nil)
}

// destination is the target that the client means. When there is none the
// connection is over.
func (f *flow) destination() (t policy.Target, ok bool) {
	at := localAddr(f.client)
	if f.s.localAddr != nil {
		at = f.s.localAddr(f.client)
	}
	literal, err := policy.TunnelTarget(policy.HostFromAddr(at.Addr()), at.Port())
	if err != nil {
		reset(f.client)
		return policy.Target{}, false
	}
	if t, ok = f.named(literal); ok {
		return t, true
	}
	// Nothing was asked for by name: an address that was made up by somebody
	// else, in another session or before a restart.
	f.s.count.denied.Add(1)
	f.record(Record{
		Kind: KindDecision, Proto: ProtoTransparent, Target: literal,
		Decision: policy.Refuse(literal, policy.FakeUnknown, unknownFake),
	})
	reset(f.client)
	return policy.Target{}, false
}

func localAddr(c net.Conn) netip.AddrPort {
	tcp, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().WithZone("").Unmap(), at.Port())
}

// named gives a target that was asked for by a made-up address the name behind it.
// ok is false for every other target, which is judged as it came.
func (f *flow) named(t policy.Target) (named policy.Target, ok bool) {
	addr, literal := t.Host().Addr()
	if !literal || f.s.NameOf == nil || addr.IsLoopback() {
		return t, false
	}
	name, ok := f.s.NameOf(addr)
	if !ok {
		return t, false
	}
	host, err := policy.ParseName(name)
	if err != nil {
		return t, false
	}
	if t.Scheme() == policy.SchemeHTTP {
		named, err = policy.NewTarget(host, t.Port(), t.Scheme())
	} else {
		named, err = policy.TunnelTarget(host, t.Port()) // a name is held to more than an address
	}
	if err != nil {
		return t, false
	}
	f.asked = addr
	return named, true
}

// meant is named for the front ends in which a client names its target: some look
// the name up themselves and give the address to the proxy.
func (f *flow) meant(t policy.Target) policy.Target {
	f.asked = netip.Addr{}
	t, _ = f.named(t)
	return t
}

// turnBack ends a connection that led nowhere, with what the client can show to
// its user where its protocol has words for that. It was judged, and nothing of it
// was read before.
func (f *flow) turnBack(t policy.Target, answer reply, denied bool) {
	switch {
	case t.Port() == httpPort:
		// Not before the request: an answer to nothing is not shown.
		if _, came := f.awaitFirst(); !came {
			return
		}
		if f.in.bytes()[0] != recordHandshake {
			f.watch.stage(f.s.limits.Header, f.stopReading)
			if f.nextRequest(true) {
				answer.close = true
				f.say(answer)
			}
			return
		}
		f.alert(denied)
	case t.Port() == tlsPort:
		f.alert(denied)
	default:
		reset(f.client)
	}
}

// alert says over TLS that access is denied; for what TLS has no word the
// connection is broken.
func (f *flow) alert(denied bool) {
	if !denied {
		reset(f.client)
		return
	}
	f.watch.stage(farewell, func() { f.abort(CauseError) })
	if _, err := f.client.Write(accessDenied); err == nil {
		f.linger()
	}
}
