package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/session/lease"
	"postern/integration/netlab"
)

// sandbox is a network of its own with the sockets that a launcher makes in one, lent
// to the appliance: the two proxies, a resolver, and with fake the listener that the
// addresses of names lead to.
type sandbox struct {
	room  *netlab.Room
	pair  lease.Pair
	more  []lease.Lent
	lease *lease.Lease

	refusals atomic.Int64 // that the launcher was told of
}

// Where a sandbox's proxies and resolver are, seen from inside.
const (
	sandboxHTTP  = "127.0.0.1:3128"
	sandboxSOCKS = "127.0.0.1:1080"
	sandboxDNS   = "127.0.0.1:53"
)

// openSandbox makes one and lends its sockets for the session of spec.
func openSandbox(lab *netlab.Lab, socket string, spec lease.Spec, fake bool) (s *sandbox, err error) {
	s = new(sandbox)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.room, err = lab.Room(); err != nil {
		return s, err
	}
	if err := s.room.Do(func() error { return s.listen(fake) }); err != nil {
		return s, fmt.Errorf("listen in the sandbox: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if s.lease, err = lease.Lend(ctx, socket, lease.Hello{Spec: spec}, s.pair, s.more...); err != nil {
		return s, err
	}
	go s.listenTo(s.lease.Events())
	want := lease.DNSAnswer
	if fake {
		want = lease.DNSFake
	}
	if got := s.lease.Answer().DNS; got != want {
		return s, fmt.Errorf("names are answered in the mode %q, not %q", got, want)
	}
	return s, nil
}

// listen runs in the room.
func (s *sandbox) listen(fake bool) error {
	tcp := func(at string) (*net.TCPListener, error) {
		ln, err := net.Listen("tcp4", at)
		if err != nil {
			return nil, err
		}
		return ln.(*net.TCPListener), nil //nolint:forcetypeassert // "tcp4" gives no other
	}
	var err error
	if s.pair.HTTP, err = tcp(sandboxHTTP); err != nil {
		return err
	}
	if s.pair.SOCKS, err = tcp(sandboxSOCKS); err != nil {
		return err
	}
	packets, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 53})
	if err != nil {
		return err
	}
	s.more = append(s.more, lease.Lent{Socket: lease.Socket{Use: lease.UseDNS, Network: lease.SocketUDP, Port: 53}, Packets: packets})
	ports := []uint16{53}
	if fake {
		ports = append(ports, 22, 80, 443, 8443)
	}
	for _, port := range ports {
		ln, err := tcp(":" + itoa(port))
		if err != nil {
			return err
		}
		use := lease.UseTransparent
		if port == 53 {
			use = lease.UseDNS
		}
		s.more = append(s.more, lease.Lent{Socket: lease.Socket{Use: use, Network: lease.SocketTCP, Port: port}, Listener: ln})
	}
	return nil
}

// end ends the session; the sockets stay open here.
func (s *sandbox) end() {
	if s.lease != nil {
		_ = s.lease.Close()
	}
}

func (s *sandbox) close() {
	s.end()
	_ = s.pair.Close()
	for _, l := range s.more {
		_ = l.Close()
	}
	if s.room != nil {
		s.room.Close()
	}
}

// dial connects from inside.
func (s *sandbox) dial(network, addr string) (conn net.Conn, err error) {
	err = s.room.Do(func() error {
		conn, err = net.DialTimeout(network, addr, patience)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect inside the sandbox: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn, nil
}

// patience bounds every wait for what has to come.
const patience = 20 * time.Second

// errDropped is the lack of a reply.
var errDropped = errors.New("no reply")

// dropped says that an error is the lack of a reply: nothing came in time, nobody listens,
// or the connection was closed. Any other leaves open what the appliance has done.
func dropped(err error) error {
	for _, lack := range []error{os.ErrDeadlineExceeded, syscall.ECONNREFUSED, io.EOF} {
		if errors.Is(err, lack) {
			return fmt.Errorf("%w: %w", errDropped, err)
		}
	}
	return err
}

// silence is how long a reply may take that is not to come.
const silence = time.Second

// ask sends one message to the session's resolver and reads one back.
func (s *sandbox) ask(raw []byte, tcp, hushed bool) (*dns.Msg, error) {
	network := "udp4"
	if tcp {
		network = "tcp4"
	}
	conn, err := s.dial(network, sandboxDNS)
	if err != nil {
		return nil, dropped(err)
	}
	defer conn.Close()
	if hushed {
		_ = conn.SetReadDeadline(time.Now().Add(silence))
	}
	return exchange(conn, raw)
}

// exchange sends one message and reads one back.
func exchange(conn net.Conn, raw []byte) (*dns.Msg, error) {
	dc := &dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize - 1}
	if _, err := dc.Write(raw); err != nil {
		return nil, dropped(fmt.Errorf("send the query: %w", err))
	}
	m, err := dc.ReadMsg()
	if err != nil {
		return nil, dropped(fmt.Errorf("read the reply: %w", err))
	}
	return m, nil
}

// lookUp asks for one name in the plainest way.
func (s *sandbox) lookUp(name string, kind uint16) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	m.SetEdns0(1232, false)
	raw, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack the query: %w", err)
	}
	return s.ask(raw, false, false)
}

// flood sends the same query n times, a few at a time, and gives each reply to f.
func (s *sandbox) flood(q *dnsQuery, n int, f func(*dns.Msg)) error {
	conn, err := s.dial("udp4", sandboxDNS)
	if err != nil {
		return err
	}
	defer conn.Close()
	dc := &dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize - 1}
	const window = 64
	for sent := 0; sent < n; {
		batch := min(window, n-sent)
		for range batch {
			raw, err := q.wire(uint16(sent))
			if err != nil {
				return err
			}
			if _, err := dc.Write(raw); err != nil {
				return fmt.Errorf("send a query: %w", err)
			}
			sent++
		}
		for range batch {
			m, err := dc.ReadMsg()
			if err != nil {
				return dropped(fmt.Errorf("read the reply to a query of many: %w", err))
			}
			f(m)
		}
	}
	return nil
}

// connect asks the session's proxy for a tunnel, and gives the status.
func (s *sandbox) connect(target string) (status int, err error) {
	conn, err := s.dial("tcp4", sandboxHTTP)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return 0, fmt.Errorf("send a CONNECT: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return 0, fmt.Errorf("read the answer to a CONNECT: %w", err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}

// listenTo counts refusals until the lease ends.
func (s *sandbox) listenTo(events <-chan lease.Event) {
	for e := range events {
		if e.Type == lease.EventDenied {
			s.refusals.Add(1)
		}
	}
}

// denied waits for the event of a refusal.
func (s *sandbox) denied() bool {
	for begin := time.Now(); s.refusals.Load() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > patience {
			return false
		}
	}
	return true
}
