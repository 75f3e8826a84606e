package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
	"postern/caddy-modules/session/peer"
)

var errNoResolver = errors.New("no configuration governs, so there is no resolver")

func noSession(id string) *lease.Error {
	return &lease.Error{Code: lease.CodeNotFound, Message: fmt.Sprintf("there is no session %q", id)}
}

// order is everything a session is opened from.
type order struct {
	kind   string
	spec   lease.Spec
	owner  int           // uid
	pid    int           // of the launcher
	holder lease.Process // the launcher, as far as the kernel says
	pair   *lease.Pair   // nil: listeners are made
	more   []lease.Lent  // of a launcher, beside the pair
	resume *lease.Resume // of a launcher
	login  *lease.Login  // of a launcher
	events *subscriber   // of a launcher
	told   chan struct{} // closed when the launcher has had its last event

	hostPorts []uint16 // of a launcher
}

// Open opens an API session for the user owner, with listeners made for it, and
// returns when they accept. Opening one that is open already with the same
// content returns what it is; other content is a conflict. The error is a
// *lease.Error.
func (r *Registry) Open(ctx context.Context, spec lease.Spec, owner int) (lease.Answer, error) {
	answer, _, err := r.put(ctx, spec, owner)
	return answer, err
}

// put is Open, and says whether the session was made by this call.
func (r *Registry) put(ctx context.Context, spec lease.Spec, owner int) (answer lease.Answer, made bool, err error) {
	for {
		s, err := r.open(ctx, order{kind: kindAPI, spec: spec, owner: owner})
		if err == nil {
			return s.answer(), true, nil
		}
		taken, ok := errors.AsType[*takenError](err)
		if !ok {
			return lease.Answer{}, false, err
		}
		other := taken.by
		// The same PUT may have come twice, the first still at work.
		select {
		case <-other.ready:
		case <-ctx.Done():
			return lease.Answer{}, false, unavailable(context.Cause(ctx))
		}
		switch {
		case other.failed != nil:
			continue // it came to nothing, and released its id before it said so
		case other.ctx.Err() != nil:
			select {
			case <-other.done: // the id is free
			case <-ctx.Done():
				return lease.Answer{}, false, unavailable(context.Cause(ctx))
			}
			continue
		case other.kind != kindAPI:
			return lease.Answer{}, false, taken.public()
		}
		if field := other.differs(spec); field != "" {
			return lease.Answer{}, false, &lease.Error{Code: lease.CodeConflict, Message: fmt.Sprintf("session %q is open with another %s; close it first", spec.ID, field)}
		}
		return other.answer(), false, nil
	}
}

// takenError says that an id belongs to another session.
type takenError struct{ by *session }

func (e *takenError) Error() string { return e.public().Message }

func (e *takenError) public() *lease.Error {
	return &lease.Error{Code: lease.CodeInUse, Message: fmt.Sprintf("session %q is open already; choose another id, or end that one", e.by.spec.ID)}
}

// As makes it the public error for who asks for one.
func (e *takenError) As(target any) bool {
	if p, ok := target.(**lease.Error); ok {
		*p = e.public()
		return true
	}
	return false
}

// open takes the id, obtains the token, makes or takes the listeners and starts
// serving. On an error nothing of it is left. The error is a *takenError or a
// *lease.Error.
func (r *Registry) open(ctx context.Context, o order) (*session, error) {
	if err := o.spec.Validate(); err != nil {
		return nil, &lease.Error{Code: lease.CodeBadRequest, Message: err.Error()}
	}
	rules, err := parseRules(o.spec.EgressAllowlist)
	if err != nil {
		return nil, err
	}
	if err := r.allowHostPorts(o.hostPorts); err != nil {
		return nil, err
	}
	s := &session{
		registry: r, kind: o.kind, hostPorts: o.hostPorts, more: o.more, resumed: o.resume != nil, spec: o.spec, owner: o.owner, pid: o.pid, holder: o.holder, events: o.events, told: o.told,
		opened: time.Now(), ready: make(chan struct{}), done: make(chan struct{}),
		log: r.log.With(slog.String("session", o.spec.ID)),
	}
	t := &terms{spec: o.spec, rules: rules}
	if o.resume != nil && o.resume.Limits != nil {
		t.caps = *o.resume.Limits
	}
	s.terms.Store(t)
	s.launcher.met, s.launcher.knows = make(chan struct{}), lease.TermsOf(t.spec, t.caps)
	if s.login, err = loginOf(o, peer.Available); err != nil {
		return nil, err
	}
	s.denials = newDenials(s.report)
	if err := r.take(s, o.resume != nil); err != nil {
		return nil, err
	}
	defer r.tasks.Done()
	defer func() {
		close(s.ready)
		if s.failed == nil {
			s.tellRefusing() // of what changed since it was announced
		}
	}()

	// Whichever ends first stops the opening: the caller, the session (because
	// someone closed it), the registry.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // two contexts end this one
	if s.failed = s.start(ctx, o); s.failed != nil {
		if why := s.why.Load(); why != nil {
			s.failed = why.refusal() // what it failed of is that it was ended
		}
		r.abandon(s) //nolint:contextcheck // the token goes, whether or not the caller still waits
		return nil, s.failed
	}
	// The view may have changed between the start of the proxies and now.
	s.front.update()
	r.tasks.Add(1) // until tearDown is over
	s.announce()
	return s, nil
}

// take claims the id, if the governing generation knows the policy.
func (r *Registry) take(s *session, resumes bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return &lease.Error{Code: lease.CodeClosing, Message: "the appliance is shutting down"}
	}
	g := r.governing.Load()
	if g == nil {
		return &lease.Error{Code: lease.CodeNotConfigured, Message: "no configuration governs this appliance; a session needs a policy"}
	}
	if s.kind == kindLease {
		// Asked first: the session that was ended may still hold the id.
		if ended := r.graves.refuse(s.spec.ID, resumes); ended != nil {
			return ended
		}
	}
	if other := r.sessions[s.spec.ID]; other != nil {
		return &takenError{other}
	}
	v := look(g, s.terms.Load())
	if g.Policies[v.policy] == nil {
		// Asked for with the network off as well: a misspelt name should not
		// wait for the day the network is on.
		if v.policy == "" {
			return &lease.Error{Code: lease.CodeUnknownPolicy, Message: "the configuration has no default policy; name one"}
		}
		return &lease.Error{Code: lease.CodeUnknownPolicy, Message: unknownPolicy(g, v.policy)}
	}
	s.adopt(v)
	s.follow(g)
	s.ctx, s.cancel = context.WithCancel(r.ctx)
	r.sessions[s.spec.ID] = s
	r.tasks.Add(1)
	return nil
}

func (s *session) start(ctx context.Context, o order) error {
	g := s.view.Load().gen
	if err := s.obtain(ctx, g, o.resume); err != nil {
		return err
	}
	http, socks, err := s.listeners(ctx, o.pair)
	if err != nil {
		return err
	}
	s.serveNames(g) //nolint:contextcheck // queries are not the opening's
	s.front.open(s, http, socks, s.transparent()...)
	if ctx.Err() != nil {
		return unavailable(context.Cause(ctx))
	}
	return nil
}

// abandon undoes what start did before it failed.
func (r *Registry) abandon(s *session) {
	s.cancel()
	s.front.close()
	s.names.stop()
	s.terms.Load().stop()
	r.own.set(s, nil)
	s.denials.close()
	r.release(s)
	s.revoke()
	s.settleWork()
	close(s.done)
}

// announce tells of the new session, refusing or not: tellRefusing goes on from
// there.
func (s *session) announce() {
	s.refusing.Lock()
	v := s.view.Load()
	s.refusing.told = v.refusing
	s.refusing.Unlock()
	network, http, socks := s.front.addresses()
	fields := map[string]any{"kind": s.kind, "policy": v.policy, "network": network, "http": http, "socks": socks}
	if len(s.hostPorts) > 0 {
		fields["hostPorts"] = s.hostPorts
	}
	if v.refusing != "" {
		fields["refusing"] = v.refusing
	}
	s.registry.Publish(lease.Event{Type: lease.EventSessionOpen, Session: s.spec.ID, Fields: fields})
	s.log.LogAttrs(s.ctx, slog.LevelInfo, "session opened", slog.String("kind", s.kind), slog.String("policy", v.policy),
		slog.String("http", http), slog.String("socks", socks), slog.Int("uid", s.owner), slog.Int("host_ports", len(s.hostPorts)))
}

func unavailable(err error) *lease.Error {
	return &lease.Error{Code: lease.CodeUnavailable, Message: err.Error()}
}

// parseRules compiles the session's own allowlist.
func parseRules(lines []string) ([]policy.Rule, error) {
	rules := make([]policy.Rule, 0, len(lines))
	for i, line := range lines {
		rule, err := policy.ParseRule(line, policy.Origin{File: "session"})
		if err != nil {
			return nil, &lease.Error{Code: lease.CodeBadRule, Message: fmt.Sprintf("egressAllowlist[%d]: %v", i, err)}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// differs names the field in which spec asks for another session than s is; ""
// means that it is the same. Addresses left out ask for nothing.
func (s *session) differs(spec lease.Spec) string {
	now := s.terms.Load().spec
	network, http, socks := s.front.addresses()
	want := lease.Listen{Network: lease.NetworkTCP}
	if spec.Listen != nil {
		want = *spec.Listen
	}
	for _, f := range []struct {
		name string
		same bool
	}{
		{"policy", spec.Policy == now.Policy},
		{"networkEnabled", spec.Network() == now.Network()},
		{"egressAllowlist", slices.Equal(spec.EgressAllowlist, now.EgressAllowlist)},
		{"repository", spec.Repository == s.spec.Repository},
		{"linkedRepositories", slices.Equal(spec.LinkedRepositories, s.spec.LinkedRepositories)},
		{"agent", spec.Agent == s.spec.Agent},
		{"workspace", spec.Workspace == s.spec.Workspace},
		{"listen.network", want.Network == network},
		{"listen.http", want.HTTP == "" || want.HTTP == http},
		{"listen.socks", want.SOCKS == "" || want.SOCKS == socks},
		{"listen.credentials", want.Credentials == (s.login != nil)},
		{"listen.login", want.Login == nil || want.Login.Equal(s.login)},
	} {
		if !f.same {
			return f.name
		}
	}
	return spec.Sandbox.Differs(s.spec.Sandbox)
}
