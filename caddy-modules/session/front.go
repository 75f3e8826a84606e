package session

import (
	"errors"
	"log/slog"
	"net"
	"sync"

	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
)

// front is a session's two listeners, those for clients that know of no proxy, and the
// proxies behind them.
//
// A proxy server has its limits from the start to the end. When a reload changes
// them the listeners are handed to a new server, and the one before keeps the
// connections it has; the sockets themselves stay, and so does their backlog.
type front struct {
	mu      sync.Mutex
	session *session
	http    net.Listener
	socks   net.Listener
	plain   []net.Listener // transparent
	serving *serving
	retired []*serving // still have connections, or had when last looked at
	closed  bool
}

// serving is one server's time behind the listeners.
type serving struct {
	server      *proxy.Server
	limits      proxy.Limits
	sni         proxy.SNIMode
	http, socks *turn
	plain       []*turn
	loops       sync.WaitGroup
}

// end ends the turns of all its listeners.
func (one *serving) end() {
	for _, t := range append([]*turn{one.http, one.socks}, one.plain...) {
		t.end()
	}
}

// open starts serving. The listeners accept already: they are the front's from
// here on, and it closes them.
func (f *front) open(s *session, http, socks net.Listener, plain ...net.Listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session, f.http, f.socks, f.plain = s, http, socks, plain
	f.serve(s.view.Load())
}

// serve starts a server for the view. mu is held.
func (f *front) serve(v *view) {
	s := f.session
	one := &serving{http: &turn{ln: f.http}, socks: &turn{ln: f.socks}}
	if v.gen != nil {
		one.limits, one.sni = v.gen.Limits, v.gen.SNI
	}
	one.server = &proxy.Server{
		Gate:   &proxy.Gate{Policy: s.policy, Resolver: s, Limits: one.limits, Record: s.record, Ask: s.ask, Held: s.held, Parent: s.parent},
		Local:  s.local,
		PushAt: s.pushAt,
		NameOf: s.nameOf,
		Made:   s.made,
		Usage:  &s.usage,
		Admit:  s.admit(f.http), // both listeners are of one kind
		Login:  s.proxyLogin(),
		SNI:    one.sni,
		Log:    s.log,
	}
	loop := func(t *turn, serve func(net.Listener) error) {
		// Nil is the end of a turn; anything else is a broken listener.
		if err := serve(t); err != nil {
			s.log.LogAttrs(s.ctx, slog.LevelError, "listener failed", slog.Any("error", err))
			go s.end(endFailed)
		}
	}
	one.loops.Go(func() { loop(one.http, one.server.ServeHTTP) })
	one.loops.Go(func() { loop(one.socks, one.server.ServeSOCKS) })
	for _, ln := range f.plain {
		t := &turn{ln: ln}
		one.plain = append(one.plain, t)
		one.loops.Go(func() { loop(t, one.server.ServeTransparent) })
	}
	f.serving = one
}

// update hands the listeners to a new server if the session's view has other
// limits by now.
func (f *front) update() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.serving == nil || f.closed {
		return // not open yet, or not any more
	}
	// Read under the lock: of two updates the later one must not act on the
	// earlier view.
	v := f.session.view.Load()
	if v.gen == nil {
		return // there are no limits to go by; everything is refused
	}
	f.prune()
	if perServer(f.serving.limits) == perServer(v.gen.Limits) && f.serving.sni == v.gen.SNI {
		return
	}
	before := f.serving
	before.end()
	// Until the loops are over, a connection may have been accepted and not be
	// counted yet; prune would take the server for idle.
	before.loops.Wait()
	f.retired = append(f.retired, before)
	f.serve(v)
}

// perServer are the limits that a server has from its start to its end: the caps are
// the session's, whatever server it has.
func perServer(l proxy.Limits) proxy.Limits {
	l.Tunnels, l.Requests, l.PerSecond, l.Bytes = 0, 0, 0, 0
	return l
}

// prune closes the retired servers that have no connection left. mu is held.
func (f *front) prune() {
	kept := f.retired[:0]
	for _, one := range f.retired {
		if one.server.Stats().OpenConns > 0 {
			kept = append(kept, one)
			continue
		}
		f.stop(one)
	}
	clear(f.retired[len(kept):])
	f.retired = kept
}

func (f *front) stop(one *serving) {
	one.end()
	if err := one.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		f.session.log.LogAttrs(f.session.ctx, slog.LevelDebug, "close proxies", slog.Any("error", err))
	}
	one.loops.Wait()
}

// servers returns the servers that may have connections.
func (f *front) servers() []*proxy.Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*proxy.Server
	for _, one := range f.retired {
		all = append(all, one.server)
	}
	if f.serving != nil {
		all = append(all, f.serving.server)
	}
	return all
}

// recheck cuts the tunnels that the session's policy refuses by now.
func (f *front) recheck() {
	for _, server := range f.servers() {
		server.Recheck()
	}
}

func (f *front) tunnels() int {
	n := 0
	for _, server := range f.servers() {
		n += int(server.Stats().OpenTunnels)
	}
	return n
}

// addresses returns the network and the two addresses, for people.
func (f *front) addresses() (network, http, socks string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.http == nil || f.socks == nil {
		return "", "", ""
	}
	network = lease.NetworkTCP
	if _, unix := f.http.Addr().(*net.UnixAddr); unix {
		network = lease.NetworkUnix
	}
	return network, f.http.Addr().String(), f.socks.Addr().String()
}

// close ends the listeners and every connection, and waits for it.
func (f *front) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	all := f.retired
	if f.serving != nil {
		f.serving.end()
		all = append(all, f.serving)
	}
	// Listeners first: no connection may come in that nobody will answer.
	for _, ln := range append([]net.Listener{f.http, f.socks}, f.plain...) {
		if ln != nil {
			_ = ln.Close()
		}
	}
	for _, one := range all {
		f.stop(one)
	}
	f.retired, f.serving = nil, nil
}
