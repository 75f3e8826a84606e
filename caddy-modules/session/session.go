package session

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
)

// Kinds of sessions.
const (
	kindLease = "lease" // a launcher lends the listeners
	kindAPI   = "api"   // opened over the control API
)

// session is one session, from the moment its id is taken until its end.
type session struct {
	registry *Registry
	log      *slog.Logger

	kind   string
	spec   lease.Spec // as it was opened; what can change of it is in terms
	terms  atomic.Pointer[terms]
	owner  int
	pid    int
	holder lease.Process // who lends the listeners, none for an API session
	login  *lease.Login  // what clients must present, nil for nothing

	hostPorts []uint16 // that a launcher leads its run to

	more    []lease.Lent // sockets beside the two listeners
	resumed bool         // the session was there before this process

	opened time.Time

	view    atomic.Pointer[view]
	names   names
	front   front
	usage   proxy.Usage // over all servers of the front
	token   token
	denials *denials
	denied  atomic.Uint64
	asks    asks
	events  *subscriber   // the launcher's, nil for an API session
	told    chan struct{} // closed when the launcher knows of the end, nil for an API session

	launcher launcher

	ctx    context.Context //nolint:containedctx // the session's own life
	cancel context.CancelFunc

	// ready is closed when opening is over; failed says how it went.
	ready  chan struct{}
	failed error

	why    atomic.Pointer[ending] // of the end, once it has begun
	ending sync.Once
	last   lease.Event   // the session_close event, set before events is cancelled
	work   work          // what is done in the session's name
	done   chan struct{} // closed when the end is complete

	refusing struct {
		sync.Mutex
		told string // what the last policy event said
	}
}

// isOpen reports whether opening is over and went well, and no end has begun.
func (s *session) isOpen() bool {
	select {
	case <-s.ready:
		return s.failed == nil && s.ctx.Err() == nil
	default:
		return false
	}
}

// policy is the set that judges a new connection.
func (s *session) policy() *policy.Set { return s.judging().set }

// parent is what connections go through by the configuration that governs.
func (s *session) parent() *proxy.Parent {
	if g := s.view.Load().gen; g != nil {
		return g.Parent
	}
	return nil // nothing is allowed either
}

// local answers the hosts that the appliance serves itself. They are its door to
// the forge and not egress: they are there with the network off as well.
func (s *session) local(t policy.Target) (func(context.Context) (net.Conn, error), bool) {
	g := s.view.Load().gen
	if g == nil || t.Port() != 80 || !slices.Contains(g.LocalHosts, t.Host().Name()) {
		return nil, false
	}
	name, _, _ := strings.Cut(t.Host().Name(), ".")
	return func(ctx context.Context) (net.Conn, error) {
		return s.registry.network.Dial(ctx, name, s.spec.ID)
	}, true
}

// pushAt is where the gateway takes pushes to a forge. Forges may be named with a
// port; without one it is port 80 that is meant, since only plain HTTP is seen.
func (s *session) pushAt(t policy.Target) (string, bool) {
	git := s.view.Load().gen.git()
	forge := t.Host().String()
	if t.Port() != 80 {
		forge = t.String()
	}
	if git.URL == "" || !slices.Contains(git.Forges, forge) {
		return "", false
	}
	return git.URL + forge + "/", true
}

// record takes the proxies' audit records.
func (s *session) record(rec proxy.Record) {
	if rec.Kind == proxy.KindDecision && !rec.Allowed() || rec.Cause == proxy.CauseRevoked {
		s.deny(&rec) // also what was allowed once and is refused now: news for the run
	}
	r := s.registry
	if r.options.Observe != nil {
		r.options.Observe(&rec)
	}
	r.audit.offer(&entry{session: s, policy: s.view.Load().policy, rec: &rec})
}

// deny counts a refusal and has it reported.
func (s *session) deny(rec *proxy.Record) {
	s.denied.Add(1)
	target, code := rec.Target.String(), rec.Code()
	s.denials.add(target, code, func() map[string]any {
		fields := map[string]any{
			"target": target,
			"proto":  string(rec.Proto),
			"code":   code,
			"reason": rec.Reason(),
			"rule":   rec.Decision.Rule,
			"source": rec.Decision.Source,
		}
		if rec.Addr.IsValid() {
			fields["addr"] = rec.Addr.String()
		}
		if rec.SNI != "" {
			fields["sni"] = rec.SNI
		}
		if rec.Cause == proxy.CauseRevoked {
			fields["cut"] = true // a tunnel that was open
		}
		return fields
	})
}

// report publishes refusals. Each has a line in the trail besides.
func (s *session) report(fields map[string]any) {
	s.registry.Publish(lease.Event{Type: lease.EventDenied, Session: s.spec.ID, Fields: fields})
}

// tellRefusing publishes that a session began to refuse everything, or ceased to.
func (s *session) tellRefusing() {
	// The view is read under the lock: two tellers must not swap their news.
	s.refusing.Lock()
	defer s.refusing.Unlock()
	v := s.view.Load()
	if v.refusing == s.refusing.told || !s.isOpen() {
		return
	}
	s.refusing.told = v.refusing
	s.registry.Publish(lease.Event{Type: lease.EventPolicy, Session: s.spec.ID, Fields: map[string]any{"policy": v.policy, "refusing": v.refusing}})
	s.log.LogAttrs(s.ctx, slog.LevelWarn, "policy changed", slog.String("policy", v.policy), slog.String("refusing", v.refusing))
}

func (s *session) info() Info {
	v, now := s.view.Load(), s.terms.Load().spec
	network, http, socks := s.front.addresses()
	return Info{
		ID: s.spec.ID, Kind: s.kind, Policy: v.policy, NetworkEnabled: now.Network(),
		EgressAllowlist: slices.Clone(now.EgressAllowlist),
		Repository:      s.spec.Repository, LinkedRepositories: slices.Clone(s.spec.LinkedRepositories),
		Agent: s.spec.Agent, Workspace: s.spec.Workspace, Owner: s.owner, PID: s.pid,
		HostPorts: slices.Clone(s.hostPorts),
		Network:   network, HTTP: http, SOCKS: socks, Credentials: s.login != nil, Opened: s.opened,
		DNS: s.served(), Tunnels: s.front.tunnels(), Denied: s.denied.Load(), Refusing: v.refusing,
	}
}

// answer is what whoever opened the session is told.
func (s *session) answer() lease.Answer {
	value, expires := s.token.get()
	var login *lease.Login
	if s.kind == kindAPI {
		login = s.login // a launcher made it
	}
	return lease.Answer{
		OK: true, Login: login, Session: s.info(), ReadToken: value, ReadTokenExpires: expires,
		Git: s.view.Load().gen.git(), DNS: s.served(), Born: s.registry.born,
	}
}
