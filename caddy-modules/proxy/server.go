package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"postern/caddy-modules/policy"
)

// SNIMode says what becomes of a tunnel to port 443 whose ClientHello does not
// name the host of the tunnel.
type SNIMode uint8

// The modes.
const (
	SNIEnforce SNIMode = iota // refuse it
	SNILog                    // let it pass and note the verdict in the record
	SNIOff                    // do not look
)

// Server runs the front ends of one session. Its exported fields are set
// before it serves and not changed afterwards; Gate.Policy is what changes under
// it. A Server that was closed stays closed.
type Server struct {
	// Gate opens every connection. Its Limits hold for the front ends as well.
	Gate *Gate
	// Local names targets that are answered in process, before any policy: the
	// git gateway. The connection is used for one request or tunnel. May be nil.
	Local func(policy.Target) (dial func(context.Context) (net.Conn, error), ok bool)
	// PushAt names the base address at which pushes to a forge are taken, for
	// clients that went to the forge itself; ok is false for every other target.
	// May be nil.
	PushAt func(policy.Target) (base string, ok bool)
	// NameOf gives the name that a made-up address stands for in this session;
	// ok is false for every other address. A target asked for by such an address
	// is judged, looked up and recorded as the name, in every front end. nil
	// knows of none.
	NameOf func(netip.Addr) (name string, ok bool)
	// Made says that an address is of those that are made up in this session. One
	// that stands for no name is refused as such, in every front end. nil knows of
	// none.
	Made func(netip.Addr) bool
	// Usage holds the session to the caps of its Limits. It is to be the same for
	// every Server of a session; nil is one of this Server's own.
	Usage *Usage
	// Admit is asked about each client connection before anything of it is
	// read. An error closes it without a word: who may not come in is told
	// nothing. For listeners that others than their session can reach. May be
	// nil.
	Admit func(net.Conn) error
	// Login is what every client must present, nil for nothing. A client
	// without it is answered 407, or as RFC 1929 says; a refusal by the policy
	// is 403 with it as without.
	Login *Login
	// SNI is what becomes of a foreign ClientHello.
	SNI SNIMode
	// Log gets what no Record tells: malformed requests at debug level, trouble
	// of the listeners. nil logs nothing.
	Log *slog.Logger

	// localAddr replaces the address that a client connected to in tests, where
	// made-up addresses lead nowhere. Nothing sets it outside of them.
	localAddr func(net.Conn) netip.AddrPort

	setup  sync.Once
	limits Limits
	ctx    context.Context //nolint:containedctx // the life of the server: Close cancels every dial with it
	cancel context.CancelFunc
	log    *slog.Logger
	count  counters
	seats  *seats       // of the process
	warned atomic.Int64 // when the log was last told of connections not served
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	flows     map[*flow]struct{}
}

type counters struct {
	conns, openConns, tunnels, openTunnels, requests atomic.Int64
	denied, malformed, failed, overflow, unadmitted  atomic.Int64
	up, down                                         atomic.Int64
}

// ServeHTTP serves the HTTP proxy on ln until ln is closed or Close is called,
// and gives nil then; any other error of the listener is returned. It closes ln.
func (s *Server) ServeHTTP(ln net.Listener) error {
	return s.serve(ln, (*flow).serveHTTP, tooManyHTTP)
}

// ServeSOCKS serves the SOCKS5 proxy, like ServeHTTP.
func (s *Server) ServeSOCKS(ln net.Listener) error {
	return s.serve(ln, (*flow).serveSOCKS, tooManySOCKS)
}

func (s *Server) init() {
	s.setup.Do(func() {
		s.limits = s.Gate.Limits.withDefaults()
		s.ctx, s.cancel = context.WithCancel(context.Background())
		if s.Usage == nil {
			s.Usage = NewUsage(s.Gate.Limits)
		}
		s.log = s.Log
		if s.log == nil {
			s.log = slog.New(slog.DiscardHandler)
		}
		s.listeners = make(map[net.Listener]struct{})
		s.flows = make(map[*flow]struct{})
		if s.seats == nil {
			s.seats = allSeats()
		}
	})
}

func (s *Server) serve(ln net.Listener, handle func(*flow), tooMany []byte) error {
	s.init()
	defer func() { _ = ln.Close() }()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.listeners[ln] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, ln)
	}()

	var pause time.Duration
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(conn, handle, tooMany)
		case s.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case !passes(err):
			return err
		default:
			// Out of descriptors or memory: what is open may end, and then
			// the backlog is served. Giving up would end the session's
			// network for good.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept failed, trying again", slog.Any("error", err), slog.Duration("pause", pause))
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
				return nil
			}
		}
	}
}

// passes says that an error of Accept is of the moment.
func passes(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED, syscall.EINTR, syscall.EAGAIN, syscall.EPROTO,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *Server) start(conn net.Conn, handle func(*flow), tooMany []byte) {
	f := &flow{s: s, client: conn}
	f.in.conn = conn
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = conn.Close()
		return
	}
	s.wg.Add(1)
	if len(s.flows) >= s.limits.Conns || !s.seats.take() {
		s.mu.Unlock()
		s.turnAway(conn, tooMany)
		return
	}
	s.flows[f] = struct{}{}
	s.mu.Unlock()
	s.count.conns.Add(1)
	s.count.openConns.Add(1)
	go func() {
		defer s.wg.Done()
		defer s.seats.give()
		if s.admits(conn) {
			f.run(handle)
		}
		s.mu.Lock()
		delete(s.flows, f)
		s.mu.Unlock()
		s.count.openConns.Add(-1)
	}()
}

// admits asks Admit, and closes a connection that may not come in. It runs in the
// connection's own goroutine: whoever accepts must not wait for it.
func (s *Server) admits(conn net.Conn) bool {
	if s.Admit == nil {
		return true
	}
	err := s.Admit(conn)
	if err == nil {
		return true
	}
	s.count.unadmitted.Add(1)
	s.warn("a connection was not admitted", slog.String("error", printable(err.Error())), slog.Int64("so_far", s.count.unadmitted.Load()))
	reset(conn)
	return false
}

// Recheck judges everything that is open by the policy in force: tunnels and
// requests that it refuses are cut, and idle upstream connections closed.
func (s *Server) Recheck() {
	s.init()
	set := s.Gate.policy()
	for _, f := range s.snapshot() {
		f.recheck(set)
	}
}

func (s *Server) snapshot() []*flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	flows := make([]*flow, 0, len(s.flows))
	for f := range s.flows {
		flows = append(flows, f)
	}
	return flows
}

// Close closes the listeners and every connection, and waits until the last
// goroutine of the server has ended. It may be called more than once.
func (s *Server) Close() error {
	s.init()
	s.mu.Lock()
	s.closed = true
	listeners := make([]net.Listener, 0, len(s.listeners))
	for ln := range s.listeners {
		listeners = append(listeners, ln)
	}
	s.mu.Unlock()
	s.cancel()
	for _, ln := range listeners {
		_ = ln.Close() // serve closes it as well; the second error says nothing
	}
	for _, f := range s.snapshot() {
		f.abort(CauseClosed)
	}
	s.wg.Wait()
	return nil
}

// Stats counts since the server was made. The numbers are read one by one.
func (s *Server) Stats() Stats {
	c := &s.count
	return Stats{
		OpenConns:   c.openConns.Load(),
		OpenTunnels: c.openTunnels.Load(),
		Conns:       c.conns.Load(),
		Tunnels:     c.tunnels.Load(),
		Requests:    c.requests.Load(),
		Denied:      c.denied.Load(),
		Malformed:   c.malformed.Load(),
		Failed:      c.failed.Load(),
		Overflow:    c.overflow.Load(),
		Unadmitted:  c.unadmitted.Load(),
		BytesUp:     c.up.Load(),
		BytesDown:   c.down.Load(),
	}
}
