package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// maxJunk is how many datagrams that do not match are read past before UDP is
// given up for TCP: a flood of guesses must not be allowed to go on until one
// of them is right.
const maxJunk = 16

// dialFunc opens a connection to an upstream.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// plain is a resolver asked over UDP, and over TCP when UDP will not do; with
// tcpOnly over TCP alone.
type plain struct {
	addr    netip.AddrPort
	tcpOnly bool
	mixCase bool
	dial    dialFunc
}

func (p *plain) String() string {
	if p.tcpOnly {
		return "tcp://" + p.addr.String()
	}
	return p.addr.String()
}

func (p *plain) close() {}

// errUseTCP asks for the same question over TCP, whose handshake a forger off
// the path cannot complete.
var errUseTCP = errors.New("the UDP answer cannot be trusted or is cut")

func (p *plain) exchange(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	query := newQuery(name, qtype, p.mixCase)
	if !p.tcpOnly {
		reply, err := p.overUDP(ctx, query)
		if !errors.Is(err, errUseTCP) {
			return reply, err
		}
		// A new ID: the old one may be known to whoever sent the odd datagrams.
		query.Id = dns.Id()
	}
	conn, err := p.dial(ctx, "tcp", p.addr.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return overStream(ctx, conn, query)
}

// overUDP sends the query from a socket of its own, so that the kernel picks a
// random source port for each and, the socket being connected, drops what does
// not come from the upstream's address and port.
func (p *plain) overUDP(ctx context.Context, query *dns.Msg) (*dns.Msg, error) {
	conn, err := p.dial(ctx, "udp", p.addr.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer watch(ctx, conn)()
	wire, err := query.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack query: %w", err)
	}
	if _, err := conn.Write(wire); err != nil {
		return nil, err
	}
	buf := make([]byte, dns.MaxMsgSize)
	for range maxJunk {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		reply := new(dns.Msg)
		if reply.Unpack(buf[:n]) != nil {
			// A cut message often does not unpack; its header says so.
			if n < 12 || buf[2]&0x82 != 0x82 || uint16(buf[0])<<8|uint16(buf[1]) != query.Id {
				continue
			}
			return nil, errUseTCP
		}
		switch matchReply(reply, query, p.mixCase) {
		case matchNone:
		case matchUnsure:
			return nil, errUseTCP
		case matchFull:
			return reply, nil
		}
	}
	return nil, errUseTCP
}

// overStream sends one query on a stream and reads its reply. The first message
// must be it: on a connection that carries one query at a time anything else is
// a broken peer.
func overStream(ctx context.Context, conn net.Conn, query *dns.Msg) (*dns.Msg, error) {
	defer watch(ctx, conn)()
	framed := &dns.Conn{Conn: conn}
	if err := framed.WriteMsg(query); err != nil {
		return nil, err
	}
	reply, err := framed.ReadMsg()
	if err != nil {
		return nil, err
	}
	// TCP has no length to cut at: a set TC bit here leaves nothing to ask.
	if matchReply(reply, query, false) == matchFull || bareFailure(reply, query) {
		return reply, nil
	}
	return nil, errors.New("the reply does not match the question")
}

// bareFailure accepts a failure without a question section, as some resolvers
// send, where the transport vouches for the peer.
func bareFailure(reply, query *dns.Msg) bool {
	return len(reply.Question) == 0 && matchReply(reply, query, false) == matchUnsure && !reply.Truncated
}

// watch holds conn to the context: its deadline, and its cancellation. The
// returned function must be called when the exchange is over.
func watch(ctx context.Context, conn net.Conn) (stop func()) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	release := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return func() { release() }
}
