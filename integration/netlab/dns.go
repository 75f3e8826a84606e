//go:build linux

package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Answer is what a name answers once.
type Answer struct {
	Addrs []netip.Addr  // given out by family: A questions get the IPv4 ones
	CNAME string        // if set, the name is an alias of this one, which Addrs belong to
	Owner string        // whose records they are, if not the asked name's
	Rcode int           // dns.RcodeSuccess if 0
	TTL   uint32        // seconds
	Drop  bool          // say nothing
	Delay time.Duration // before the answer
}

// Addrs is an answer of these addresses, not to be kept. It panics on text
// that is no address.
func Addrs(addrs ...string) Answer {
	var a Answer
	for _, s := range addrs {
		a.Addrs = append(a.Addrs, netip.MustParseAddr(s))
	}
	return a
}

// Query is a line of the name server's log.
type Query struct {
	Name string // lower case, with the final dot
	Type uint16
	TCP  bool
}

func (q Query) String() string { return q.Name + " " + dns.TypeToString[q.Type] }

// DNS is a name server that answers as it is told, on UDP and TCP. Names that
// it was told nothing about get the default answer, NXDOMAIN unless set.
type DNS struct {
	servers []*dns.Server
	wg      sync.WaitGroup

	mu      sync.Mutex
	answers map[string][]Answer
	turn    map[Query]int // how often a name was asked for a type
	other   func(name string) Answer
	script  func(req *dns.Msg, tcp bool) [][]byte
	log     []Query
}

// ListenDNS serves port 53 of an address. Inside a lab that may be any.
func ListenDNS(addr netip.Addr) (*DNS, error) {
	return ListenDNSPort(netip.AddrPortFrom(addr, 53))
}

// ListenDNSPort is ListenDNS on another port; with port 0 a free one is
// chosen, see Addr. It needs no lab.
func ListenDNSPort(at netip.AddrPort) (*DNS, error) {
	d := &DNS{answers: map[string][]Answer{}, turn: map[Query]int{}, other: unknown}
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	at = pc.LocalAddr().(*net.UDPAddr).AddrPort() //nolint:forcetypeassert // ListenUDP gives no other
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		_ = pc.Close()
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	d.servers = []*dns.Server{{PacketConn: pc, Handler: d}, {Listener: ln, Handler: d}}
	for _, s := range d.servers {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		d.wg.Go(func() { _ = s.ActivateAndServe() })
		<-started
	}
	return d, nil
}

// Addr is where the server listens.
func (d *DNS) Addr() netip.AddrPort {
	return d.servers[0].PacketConn.LocalAddr().(*net.UDPAddr).AddrPort() //nolint:forcetypeassert // made by ListenUDP
}

// Close ends the server.
func (d *DNS) Close() {
	for _, s := range d.servers {
		_ = s.Shutdown()
	}
	d.wg.Wait()
}

// Set gives a name its answers: the first lookup gets the first, and so on;
// the last is repeated. Lookups are counted for each type by itself, so that a
// resolver which asks for A and AAAA sees both from the same answer. With no
// answers the name is unknown again.
func (d *DNS) Set(name string, answers ...Answer) {
	name = fqdn(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	for q := range d.turn {
		if q.Name == name {
			delete(d.turn, q)
		}
	}
	if len(answers) == 0 {
		delete(d.answers, name)
		return
	}
	d.answers[name] = slices.Clone(answers)
}

// SetDefault gives the answer for every name not Set; it is called with the
// name in lower case and the final dot. nil is NXDOMAIN.
func (d *DNS) SetDefault(f func(name string) Answer) {
	if f == nil {
		f = unknown
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.other = f
}

// SetScript has every message answered by f, which gives the packets to send,
// none for silence, whatever names were Set. Over TCP the first alone is sent.
// nil ends it.
func (d *DNS) SetScript(f func(req *dns.Msg, tcp bool) [][]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script = f
}

func unknown(string) Answer { return Answer{Rcode: dns.RcodeNameError} }

// Queries is the log since the last Forget.
func (d *DNS) Queries() []Query {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// Forget empties the log; answers stay.
func (d *DNS) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = nil
}

// ServeDNS answers one message; it is called by the server.
func (d *DNS) ServeDNS(w dns.ResponseWriter, req *dns.Msg) {
	m := new(dns.Msg)
	if len(req.Question) != 1 {
		m.SetRcode(req, dns.RcodeFormatError)
		_ = w.WriteMsg(m)
		return
	}
	q := req.Question[0]
	_, tcp := w.RemoteAddr().(*net.TCPAddr)
	d.mu.Lock()
	script := d.script
	if script != nil {
		d.log = append(d.log, Query{Name: fqdn(q.Name), Type: q.Qtype, TCP: tcp})
	}
	d.mu.Unlock()
	if script != nil {
		for _, packet := range script(req, tcp) {
			_, _ = w.Write(packet)
			if tcp {
				break
			}
		}
		return
	}
	a := d.next(Query{Name: fqdn(q.Name), Type: q.Qtype}, tcp)
	if a.Drop {
		return
	}
	time.Sleep(a.Delay)
	m.SetReply(req)
	m.Rcode, m.RecursionAvailable = a.Rcode, true
	owner := q.Name // echoes the question's spelling, as 0x20 wants
	if a.Owner != "" {
		owner = fqdn(a.Owner)
	}
	if a.CNAME != "" {
		m.Answer = append(m.Answer, &dns.CNAME{Hdr: header(owner, dns.TypeCNAME, a.TTL), Target: fqdn(a.CNAME)})
		owner = fqdn(a.CNAME)
	}
	for _, addr := range a.Addrs {
		switch {
		case q.Qtype == dns.TypeA && addr.Is4():
			m.Answer = append(m.Answer, &dns.A{Hdr: header(owner, dns.TypeA, a.TTL), A: addr.AsSlice()})
		case q.Qtype == dns.TypeAAAA && addr.Is6():
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(owner, dns.TypeAAAA, a.TTL), AAAA: addr.AsSlice()})
		}
	}
	_ = w.WriteMsg(m)
}

// next logs a query and picks its answer.
func (d *DNS) next(q Query, tcp bool) Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, Query{Name: q.Name, Type: q.Type, TCP: tcp})
	list := d.answers[q.Name]
	if len(list) == 0 {
		return d.other(q.Name)
	}
	n := d.turn[q]
	d.turn[q]++
	return list[min(n, len(list)-1)]
}

func header(name string, kind uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

func fqdn(name string) string { return strings.ToLower(dns.Fqdn(name)) }
