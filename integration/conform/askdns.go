package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
	"postern/dnsguard"
)

// guardAddr is where the guard of a `dns` case listens.
var guardAddr = netip.MustParseAddrPort("127.0.0.53:53")

// askDNS replays a `dns` case against the guard's own server. Sessions of the
// appliance have no DNS socket so far, so the guard is opened here, with the
// same upstream and the same rules; nothing inside it is stood in for.
func (w *world) askDNS(ctx context.Context, c *testCase) (*outcome, error) {
	o := new(outcome)
	in, err := parseDNS(c.Input)
	if err != nil {
		return nil, err
	}
	if err := w.prepare(c); err != nil {
		return nil, err
	}
	set, err := c.compile()
	if err != nil {
		o.add(fault, "the list is refused: %v", err)
		return o, nil
	}
	if in.scripted && len(in.questions) > 0 {
		w.dns.Set(in.questions[0].Name, in.answer)
		defer w.dns.Set(in.questions[0].Name)
	}
	rec := new(dnsRecords)
	// The mixed answer of the cases wants its private record dropped and the
	// public one kept.
	guard, err := dnsguard.New(dnsguard.Config{Upstreams: []string{dnsAddr.String()}, Private: dnsguard.Drop, Record: rec.add})
	if err != nil {
		return nil, fmt.Errorf("make the guard: %w", err)
	}
	defer func() { _ = guard.Close() }()
	view := guard.Session(c.policyName(), func() *policy.Set { return set })
	defer func() { _ = view.Close() }()
	stop, err := serveGuard(view)
	if err != nil {
		return nil, err
	}
	defer stop()
	if in.says("queries/s") {
		err = c.flood(ctx, rec, o)
	} else {
		err = in.ask(ctx, rec, o)
	}
	if err != nil {
		return nil, err
	}
	// A question that is refused stays here; an answer that is refused had to be
	// asked for.
	queries := w.dns.Queries()
	if v := o.verdicts[0]; len(queries) > 0 && (v == fault || v == deny && !in.scripted && !in.says("queries/s")) {
		o.fault("it looked up %s", queries[0])
	}
	if n := c.ExpectDNSQueries; n != nil && *n != len(queries) {
		o.fault("it looked up %d names, not %d", len(queries), *n)
	}
	return o, nil
}

// compile makes the case's lists a policy.
func (c *testCase) compile() (*policy.Set, error) {
	var lists policy.Lists
	for _, l := range []struct {
		from []string
		to   *[]policy.Rule
		file string
	}{{c.Allow, &lists.Allow, "allow"}, {c.Deny, &lists.Deny, "deny"}} {
		for i, text := range l.from {
			r, err := policy.ParseRule(text, policy.Origin{File: l.file, Line: i + 1})
			if err != nil {
				return nil, err
			}
			*l.to = append(*l.to, r)
		}
	}
	return policy.Compile(lists, nil)
}

// serveGuard opens the guard's two sockets.
func serveGuard(view *dnsguard.View) (stop func(), err error) {
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(guardAddr))
	if err != nil {
		return nil, fmt.Errorf("listen for the guard: %w", err)
	}
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(guardAddr))
	if err != nil {
		_ = pc.Close()
		return nil, fmt.Errorf("listen for the guard: %w", err)
	}
	server := dnsguard.NewServer(view)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(pc, ln)
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// ask sends one query and reads the verdict off the answer and the record.
func (in dnsInput) ask(ctx context.Context, rec *dnsRecords, o *outcome) error {
	network := "udp"
	if in.says("tcp") {
		network = "tcp"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, guardAddr.String())
	if err != nil {
		return fmt.Errorf("connect to the guard: %w", err)
	}
	defer conn.Close()
	raw, err := in.message().Pack()
	if err != nil {
		return fmt.Errorf("pack the query: %w", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	if !in.says("qr=1") { // which is dropped; anything else may have to be looked up
		_ = conn.SetReadDeadline(time.Now().Add(6 * time.Second))
	}
	m, err := exchange(conn, raw)
	if errors.Is(err, errDropped) {
		o.add(fault, "dropped")
		return nil
	}
	if err != nil {
		return err
	}
	how := dns.RcodeToString[m.Rcode]
	switch r, ok := rec.last(); {
	case ok && r.Verdict == dnsguard.Fail:
		o.add(unreached, "%s (%s)", how, r.Reason)
	case ok:
		o.add(verdict(r.Verdict), "%s (%s)", how, r.Reason)
		if (r.Verdict != dnsguard.Allow) && len(m.Answer) > 0 {
			o.fault("it gave an answer")
		}
		in.checkAnswer(m, o)
	case m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented:
		o.add(fault, "%s", how)
	default:
		o.add("unrecorded", "%s", how)
	}
	return nil
}

// checkAnswer wants an answer for the asked name alone, in its own spelling,
// without an address that no session may reach.
func (in dnsInput) checkAnswer(m *dns.Msg, o *outcome) {
	if len(in.questions) == 1 && len(m.Question) == 1 && wireName(m.Question[0].Name) != wireName(in.questions[0].Name) {
		o.fault("the question came back as %q", m.Question[0].Name)
	}
	for _, rr := range m.Answer {
		var raw net.IP
		switch rr := rr.(type) {
		case *dns.A:
			raw = rr.A
		case *dns.AAAA:
			raw = rr.AAAA
		case *dns.SVCB, *dns.HTTPS:
			o.fault("it gave a service binding")
			continue
		}
		if a, ok := netip.AddrFromSlice(raw); ok {
			if class, _ := policy.Classify(a.Unmap()); class != policy.Public {
				o.fault("it gave %s", a)
			}
		}
	}
}

// wireName is a name as it goes over the wire, since its text has several
// spellings for one byte.
func wireName(name string) string {
	buf := make([]byte, 512)
	n, err := dns.PackDomainName(name, buf, 0, nil, false)
	if err != nil {
		return name
	}
	return string(buf[:n])
}

// flood asks for one allowed name more often than a session may, and wants to
// be refused, and to be so on the record.
func (c *testCase) flood(ctx context.Context, rec *dnsRecords, o *outcome) error {
	if len(c.Allow) == 0 {
		return errors.New("a flood needs an allowed name")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "udp", guardAddr.String())
	if err != nil {
		return fmt.Errorf("connect to the guard: %w", err)
	}
	defer conn.Close()
	dc := &dns.Conn{Conn: conn, UDPSize: 4096}
	refused := 0
	for i := range 1024 {
		m := new(dns.Msg)
		m.SetQuestion(dns.Fqdn(c.Allow[0]), dns.TypeA)
		m.Id = uint16(i)
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		if err := dc.WriteMsg(m); err != nil {
			return fmt.Errorf("send a query: %w", err)
		}
		r, err := dc.ReadMsg()
		if err != nil {
			return fmt.Errorf("read a reply: %w", err)
		}
		if r.Rcode == dns.RcodeRefused {
			refused++
		}
	}
	switch {
	case refused == 0:
		o.add(allow, "1024 queries were answered")
	case !rec.has(dnsguard.Deny):
		o.add("unrecorded", "%d of 1024 were refused", refused)
	default:
		o.add(deny, "%d of 1024 were refused", refused)
	}
	return nil
}

// dnsRecords are the guard's audit records.
type dnsRecords struct {
	mu  sync.Mutex
	all []dnsguard.Record
}

func (d *dnsRecords) add(r dnsguard.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, r)
}

// last waits a moment: a record may come after its answer.
func (d *dnsRecords) last() (dnsguard.Record, bool) {
	for range 50 {
		d.mu.Lock()
		n := len(d.all)
		d.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) == 0 {
		return dnsguard.Record{}, false
	}
	return d.all[len(d.all)-1], true
}

// has reports whether there is a record with this verdict.
func (d *dnsRecords) has(v dnsguard.Verdict) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.all, func(r dnsguard.Record) bool { return r.Verdict == v })
}
