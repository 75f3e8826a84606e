package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// maxQuery is the largest query read from UDP. Stubs pad to some hundred
	// octets; miekg/dns would cut at 512 and then refuse what it cut.
	maxQuery       = 4096
	maxInFlight    = 256 // messages judged at the same time, for one server
	maxConns       = 64  // TCP connections of one server
	maxConnQueries = 128
	idleConns      = 8 * time.Second
	messageTimeout = 2 * time.Second // to read or write one message
)

// Server is the stub server of one session: DNS over UDP and TCP on sockets that
// were made where the session lives. The session is whoever reaches these
// sockets; a source address says nothing.
type Server struct {
	view atomic.Pointer[View]

	mu      sync.Mutex
	closed  bool
	serving []*dns.Server
	done    sync.WaitGroup
	slots   chan struct{}
}

// NewServer makes a server of view. Closing it does not close the view.
func NewServer(view *View) *Server {
	s := &Server{slots: make(chan struct{}, maxInFlight)}
	s.view.Store(view)
	return s
}

// Swap has every message that comes from now on answered by view, over the same
// sockets: a new configuration must not lose the queries that wait in them. The
// caller closes the view before once it has swapped; a message that is being
// judged by it then is judged again by the new one.
func (s *Server) Swap(view *View) { s.view.Store(view) }

// Serve answers on both sockets, either of which may be nil, until Close or until
// one of them fails. It owns and closes them. It may be called once for each
// pair of sockets.
func (s *Server) Serve(packets net.PacketConn, streams net.Listener) error {
	var servers []*dns.Server
	if packets != nil {
		servers = append(servers, s.server(UDP))
		servers[len(servers)-1].PacketConn = packets
	}
	if streams != nil {
		servers = append(servers, s.server(TCP))
		servers[len(servers)-1].Listener = &limitListener{Listener: streams, slots: make(chan struct{}, maxConns)}
	}
	if len(servers) == 0 {
		return errors.New("serve dns: no socket is given")
	}
	// Both run until one ends, whatever ended it: half a resolver, which answers
	// over UDP and not over TCP, is harder to notice than none.
	started := make(chan struct{}, len(servers))
	ended := make(chan error, len(servers))
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		for _, one := range servers {
			closeSockets(one)
		}
		return ErrClosed
	}
	for _, one := range servers {
		one.NotifyStartedFunc = func() { started <- struct{}{} }
		s.done.Go(func() { ended <- one.ActivateAndServe() })
	}
	// A server can be shut down only once it runs.
	var err error
	up, running := 0, len(servers)
	for up < running && err == nil {
		select {
		case <-started:
			up++
		case err = <-ended:
			running--
		}
	}
	s.serving = append(s.serving, servers...)
	s.mu.Unlock()
	if err == nil && running > 0 {
		err = <-ended
		running--
	}
	for _, one := range servers {
		shutdown(one)
	}
	for range running {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return fmt.Errorf("serve dns: %w", err)
	}
	return nil
}

// Close ends every Serve, waits for the answers under way and closes the sockets.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	servers := s.serving
	s.serving = nil
	s.mu.Unlock()
	for _, one := range servers {
		shutdown(one)
	}
	s.done.Wait()
	return nil
}

// shutdown stops a server, started or not.
func shutdown(one *dns.Server) {
	if one.Shutdown() != nil { // it is not running: nothing else closes the socket
		closeSockets(one)
	}
}

// closeSockets does what Shutdown does for a server that runs.
func closeSockets(one *dns.Server) {
	if one.PacketConn != nil {
		_ = one.PacketConn.Close()
	}
	if one.Listener != nil {
		_ = one.Listener.Close()
	}
}

// server is one miekg/dns server for one transport. TSIG is off and nothing is
// hijacked, so all that it does is framing.
func (s *Server) server(proto string) *dns.Server {
	return &dns.Server{
		Handler:        dns.HandlerFunc(func(w dns.ResponseWriter, req *dns.Msg) { s.serve(w, req, proto) }),
		UDPSize:        maxQuery,
		ReadTimeout:    messageTimeout,
		IdleTimeout:    func() time.Duration { return idleConns },
		MaxTCPQueries:  maxConnQueries,
		MsgAcceptFunc:  accept,
		MsgInvalidFunc: func(_ []byte, err error) { s.invalid(err, proto) },
	}
}

// accept drops what could start a loop and leaves every other refusal to
// View.Answer, which records it. The default of miekg/dns would answer FORMERR
// and NOTIMP by itself, and accept NOTIFY.
func accept(h dns.Header) dns.MsgAcceptAction {
	const qr = 1 << 15
	if h.Bits&qr != 0 {
		return dns.MsgIgnore
	}
	return dns.MsgAccept
}

// invalid records a message that cannot be unpacked. What has a header gets
// FORMERR from miekg/dns, what is shorter gets nothing.
func (s *Server) invalid(err error, proto string) {
	view := s.view.Load()
	view.record(context.Background(), Record{
		Time: view.now(), Proto: proto, Verdict: Error, Reason: reasonShape, Detail: shown(err.Error()),
	})
}

// serve answers one message. A message beyond what may be under way at a time is
// refused unheard: waiting would keep a goroutine for each datagram of a flood.
func (s *Server) serve(w dns.ResponseWriter, req *dns.Msg, proto string) {
	view := s.view.Load()
	log := view.guard.conf.Log
	defer func() {
		// One hostile message must not end the appliance for all sessions.
		if p := recover(); p != nil {
			log.LogAttrs(context.Background(), slog.LevelError, "answer dns query",
				slog.String("session", view.Session()), slog.Any("panic", p))
			_ = w.WriteMsg(new(dns.Msg).SetRcode(req, dns.RcodeServerFailure))
		}
	}()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		_ = w.WriteMsg(new(dns.Msg).SetRcode(req, dns.RcodeRefused))
		return
	}
	// A second more than lookups take, so that their own words reach the client.
	ctx, cancel := context.WithTimeout(context.Background(), view.guard.conf.TotalTimeout+time.Second)
	defer cancel()
	reply := view.Answer(ctx, req, proto)
	if now := s.view.Load(); reply == nil && now != view {
		reply = now.Answer(ctx, req, proto)
	}
	if reply == nil {
		_ = w.Close() // over UDP this closes nothing but w itself
		return
	}
	if err := w.WriteMsg(reply); err != nil {
		log.LogAttrs(ctx, slog.LevelDebug, "write dns answer",
			slog.String("session", view.Session()), slog.Any("error", err))
	}
}

// limitListener bounds the connections that are open at a time. The next one
// waits in the kernel's backlog, where it costs nothing.
type limitListener struct {
	net.Listener
	slots chan struct{}
}

// Accept waits for a slot, then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// limitedConn gives its slot back when it is closed.
type limitedConn struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// Write bounds the wait for a client that does not read, which miekg/dns does not
// do and for which its shutdown would wait too.
func (c *limitedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(messageTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
