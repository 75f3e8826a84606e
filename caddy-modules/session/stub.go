package session

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
	"postern/dnsguard"
)

// Stub says how names are answered on the sockets that a launcher lends for DNS.
type Stub uint8

const (
	// StubFake answers with addresses that stand for names and lead to the transparent
	// listeners. Where none are lent it is StubAnswer.
	StubFake Stub = iota
	// StubAnswer answers with the addresses of the names.
	StubAnswer
	// StubOff serves no socket of sessions that are opened from then on.
	StubOff
)

// stub is a session's stub resolver. names.mu guards the server.
type stub struct {
	server *dnsguard.Server // nil: not served
	loops  sync.WaitGroup
}

// lends reports whether the launcher lent sockets for a use.
func (s *session) lends(use string) bool {
	return slices.ContainsFunc(s.more, func(l lease.Lent) bool { return l.Use == use })
}

// dns says how a generation has names answered in this session.
func (s *session) dns(g *Generation) string {
	switch {
	case g == nil || g.Guard == nil || !s.lends(lease.UseDNS):
		return ""
	case g.Stub == StubOff:
		return ""
	case g.Stub == StubFake && s.lends(lease.UseTransparent):
		return lease.DNSFake
	default:
		return lease.DNSAnswer
	}
}

// naming is how the generation's guard is to serve this session. Addresses of IPv6 are
// made up only where the sandbox has a listener to which they lead.
func (s *session) naming(g *Generation) []dnsguard.SessionOption {
	fake := s.dns(g) == lease.DNSFake
	six := fake && g.FakeIPv6 && slices.ContainsFunc(s.more, func(l lease.Lent) bool { return l.Use == lease.UseTransparent && l.IPv6() })
	return []dnsguard.SessionOption{dnsguard.WithFakeIP(fake), dnsguard.WithFakeIP6(six), dnsguard.WithRestored(s.resumed)}
}

// serveNames serves the sockets for DNS, or closes all that was lent when they are not
// to be served: whoever asks is refused at once then, as soon as the launcher, which is
// told so, has closed its own.
func (s *session) serveNames(g *Generation) {
	n := &s.names
	n.mu.Lock()
	defer n.mu.Unlock()
	view := n.view.Load()
	if s.dns(g) == "" || view == nil || n.stopped {
		for _, l := range s.more {
			_ = l.Close()
		}
		s.more = nil
		return
	}
	n.stub.server = dnsguard.NewServer(view)
	for _, l := range s.more {
		if l.Use != lease.UseDNS {
			continue
		}
		n.stub.loops.Go(func() {
			var packets net.PacketConn
			var streams net.Listener
			if l.Packets != nil {
				packets = l.Packets
			} else {
				streams = l.Listener
			}
			if err := n.stub.server.Serve(packets, streams); err != nil && s.ctx.Err() == nil {
				s.log.LogAttrs(s.ctx, slog.LevelError, "socket for dns failed", slog.String("socket", l.String()), slog.Any("error", err))
				go s.end(endFailed)
			}
		})
	}
}

// transparent are the listeners for clients that know of no proxy.
func (s *session) transparent() []net.Listener {
	var lns []net.Listener
	for _, l := range s.more {
		if l.Use == lease.UseTransparent {
			lns = append(lns, l.Listener)
		}
	}
	return lns
}

// nameOf is the name that a client means by an address: one that was made up for the
// name, or where names are answered as they are one that the session was told for it.
// What rules say of the address itself goes before that.
func (s *session) nameOf(a netip.Addr) (string, bool) {
	view := s.names.view.Load()
	if view == nil {
		return "", false
	}
	if name, ok := view.FakeName(a); ok {
		return name, true
	}
	if s.served() != lease.DNSAnswer {
		return "", false
	}
	set := s.policy()
	t, err := policy.NewTarget(policy.HostFromAddr(a), 443, policy.SchemeTLS)
	if err != nil {
		return "", false
	}
	// That everything is asked about is no rule for the address.
	if d := set.Decide(t); d.Code != policy.NotAllowed && (d.Code != policy.AskFirst || d.Rule != "") {
		return "", false
	}
	for _, name := range view.NamesOf(a) {
		if dnsguard.Named(set, name) {
			return name, true // the port that it is for is judged with it
		}
	}
	return "", false
}

// made says that an address is of those that are made up for names in this session.
func (s *session) made(a netip.Addr) bool {
	return dnsguard.IsFake(a) && s.served() == lease.DNSFake
}

// served says how names are answered now, "" for not at all.
func (s *session) served() string {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	if s.names.stub.server == nil {
		return ""
	}
	if mode := s.dns(s.view.Load().gen); mode != "" {
		return mode
	}
	return lease.DNSAnswer // no generation governs, or one that serves no new sockets
}

// Judged takes what a guard says of a query. What a stub server refused is reported as
// what a proxy refuses is, and is no more of a violation: programs ask for names that
// nothing depends on. The proxies' own lookups end in a refusal of theirs.
func (r *Registry) Judged(rec dnsguard.Record) {
	if r.options.ObserveName != nil {
		r.options.ObserveName(&rec)
	}
	if rec.Verdict != dnsguard.Deny || rec.Proto != dnsguard.UDP && rec.Proto != dnsguard.TCP {
		return
	}
	if rec.Reason == dnsguard.ReasonType || rec.Reason == dnsguard.ReasonSpecial {
		return // every client asks for more than it needs: other types, its own name
	}
	s := r.find(rec.Session)
	if s == nil {
		return
	}
	r.audit.offer(&entry{session: s, policy: s.view.Load().policy, name: &rec})
	s.denied.Add(1)
	code := refusalCode(rec)
	s.denials.add(rec.Name, code, func() map[string]any {
		return map[string]any{
			"target": rec.Name, "proto": ProtoDNS, "code": code, "reason": rec.Detail, "rule": rec.Rule, "source": rec.Source,
		}
	})
}

// refusalCode is the code that the proxies give a refusal which a guard gives a reason:
// one target is refused in the same words on every path.
func refusalCode(rec dnsguard.Record) string {
	if rec.Reason == dnsguard.ReasonRebind {
		return rec.Code // an address may be denied, and not of a class alone
	}
	for c := policy.NotAllowed; c <= policy.TooManyBytes; c++ {
		if c.String() == rec.Reason {
			return rec.Reason
		}
	}
	return policy.NameRefused.String()
}
