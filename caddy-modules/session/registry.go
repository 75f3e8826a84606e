package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
	"postern/dnsguard"
)

// Info describes a session. It holds no secrets.
type Info = lease.Info

// Options configure a Registry. Nothing of it changes while the process lives.
type Options struct {
	// RunDir is where control.sock and lease.sock are: a directory of mode 0700
	// that this user owns. It need not exist before Listen.
	RunDir string

	// Ports is the range for listeners of API sessions, as FIRST-LAST; empty
	// means DefaultPorts.
	Ports string

	// Log takes what happens while no generation governs.
	Log *slog.Logger

	// Observe is told each decision and each close of a proxy, and ObserveName each
	// name that was judged, on the path of a connection and from many goroutines: they
	// must not block, nor keep what they are given. They count; what is written down
	// is the trail's business. nil tells nobody.
	Observe     func(*proxy.Record)
	ObserveName func(*dnsguard.Record)
}

// Registry holds the sessions of this process. Make one with New; its methods
// are safe for concurrent use.
type Registry struct {
	options Options
	log     *slog.Logger
	born    string
	started time.Time
	network *Network
	own     *own
	ports   *ports
	hub     *hub
	audit   *audit
	routes  routes

	// credentials says who a peer is, now what time it is; lease.PeerOf and time.Now
	// except in tests.
	credentials credentials
	now         func() time.Time

	ctx    context.Context //nolint:containedctx // the registry's own life, ended by Destruct
	cancel context.CancelFunc
	emits  *subscriber
	tasks  sync.WaitGroup // sessions, and the goroutines behind the doors

	reload    sync.Mutex // one Push or Drop at a time, tunnels included
	governing atomic.Pointer[Generation]

	mu       sync.Mutex // guards what follows
	gens     []*Generation
	sessions map[string]*session
	graves   graves
	closing  bool
	doors    *doors // nil: Listen has not succeeded

	unrevoked atomic.Uint64 // tokens that outlived their session
}

// New makes a registry without sessions, policies or doors.
func New(o Options) *Registry {
	r := &Registry{
		options:     o,
		born:        rand.Text(),
		started:     time.Now(),
		network:     newNetwork(),
		own:         newOwn(),
		ports:       newPorts(o.Ports),
		hub:         newHub(),
		credentials: lease.PeerOf,
		now:         time.Now,
		sessions:    map[string]*session{},
	}
	r.log = LiveLog(r.handler)
	r.audit = newAudit(r.handler, auditQueue)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.emits = r.hub.subscribe("", emitQueue)
	r.tasks.Go(r.emit)
	go r.audit.run()
	return r
}

// emit is the one goroutine that calls the event sinks of generations, which may
// be slow. Events that find no generation are for the streams alone.
func (r *Registry) emit() {
	_ = r.emits.each(nil, func(e lease.Event) error {
		if g := r.governing.Load(); g != nil && g.Emit != nil {
			g.Emit(e)
		}
		return nil
	})
}

// Born identifies this process to who opened sessions: another value means that
// the sessions of the earlier one are gone.
func (r *Registry) Born() string { return r.born }

// Push lets g govern: new connections of every session are judged by it from now
// on. Tunnels that are open are not touched. Pushing a generation that is in the
// registry already does nothing.
func (r *Registry) Push(g *Generation) {
	if g == nil {
		return
	}
	r.reload.Lock()
	defer r.reload.Unlock()
	r.mu.Lock()
	if r.closing || slices.Contains(r.gens, g) {
		r.mu.Unlock()
		return
	}
	r.gens = append(r.gens, g)
	all := r.govern()
	r.mu.Unlock()
	r.settle(all)
}

// Drop takes g away. Is it the newest, the load of a configuration has failed:
// the one before governs again and nothing is cut. Is it an older one, the load
// of the newest has succeeded: open tunnels that it refuses are cut. Dropping a
// generation that is not in the registry does nothing.
func (r *Registry) Drop(g *Generation) {
	r.reload.Lock()
	defer r.reload.Unlock()
	r.mu.Lock()
	i := slices.Index(r.gens, g)
	if i < 0 || r.closing {
		r.mu.Unlock()
		return
	}
	commit := i < len(r.gens)-1
	r.gens = slices.Delete(r.gens, i, i+1)
	all := r.govern()
	r.mu.Unlock()
	r.settle(all)
	if commit {
		for _, s := range all {
			s.front.recheck()
		}
	}
}

// govern makes the newest generation count for every session, and returns them.
// mu is held: a session that is being opened sees this or the next one, whole.
func (r *Registry) govern() []*session {
	var newest *Generation
	if n := len(r.gens); n > 0 {
		newest = r.gens[n-1]
	}
	r.governing.Store(newest)
	all := make([]*session, 0, len(r.sessions))
	for _, s := range r.sessions {
		s.adopt(look(newest, s.terms.Load()))
		s.follow(newest)
		all = append(all, s)
	}
	return all
}

// settle does what a new view needs besides being stored, outside of mu: servers
// with the new limits, an end to lookups of the generation before, and an event where a session began or ceased to refuse.
func (r *Registry) settle(all []*session) {
	for _, s := range all {
		s.front.update()
		s.names.retire()
		s.tellRefusing()
	}
}

// Lookup returns a session that is open.
func (r *Registry) Lookup(id string) (Info, bool) {
	s := r.find(id)
	if s == nil {
		return Info{}, false
	}
	return s.info(), true
}

// ReadToken returns the read token of a session. ok is false when it has none, or
// when it has expired.
func (r *Registry) ReadToken(id string) (value string, expires time.Time, ok bool) {
	s := r.find(id)
	if s == nil {
		return "", time.Time{}, false
	}
	value, expires = s.token.get()
	return value, expires, value != "" && (expires.IsZero() || time.Now().Before(expires))
}

// find returns the session if it is open.
func (r *Registry) find(id string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[id]; s != nil && s.isOpen() {
		return s
	}
	return nil
}

// Snapshot returns the open sessions, by id.
func (r *Registry) Snapshot() []Info {
	r.mu.Lock()
	open := make([]*session, 0, len(r.sessions))
	for _, s := range r.sessions {
		if s.isOpen() {
			open = append(open, s)
		}
	}
	r.mu.Unlock()
	infos := make([]Info, 0, len(open))
	for _, s := range open {
		infos = append(infos, s.info())
	}
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	return infos
}

// Close ends a session on request, one that is still being opened too: its
// tunnels, its listeners, its token, its lease, and what is done in its name. It
// returns when that is done, 5 s at the latest. The error is a *lease.Error with
// the code not_found when there is no such session.
//
// The end is final. No launcher can lend the id again that held it, nor one that
// resumes a session of that id, even where there is none at this moment because
// its launcher is on the way. A new run may have the id when the launcher of the
// one before has gone, and a host may open a session with it at once.
func (r *Registry) Close(id string) error {
	r.mu.Lock()
	s := r.sessions[id]
	switch {
	case s != nil:
		r.graves.bury(id, s.holder)
	case lease.ValidateID(id) == nil:
		r.graves.bury(id, "")
	}
	r.mu.Unlock()
	if s == nil {
		return noSession(id)
	}
	s.end(endRequested)
	return nil
}

// Own reports whether an address is one of this process's listeners, whatever
// address of this host it is reached by. It is a policy.OwnFunc.
func (r *Registry) Own(ap netip.AddrPort) bool { return r.own.match(ap) }

// SetOwn replaces the listeners that key stands for; none removes them.
func (r *Registry) SetOwn(key any, addrs []netip.AddrPort) { r.own.set(key, addrs) }

// Network returns the network of listeners without a port.
func (r *Registry) Network() *Network { return r.network }

// Publish tells subscribers, the session's launcher and the event sink of an
// event. It never blocks. A zero time becomes now.
func (r *Registry) Publish(e lease.Event) { r.hub.publish(e) }

// Destruct ends everything: the doors first, then every session. It implements
// caddy.Destructor and may be called again.
func (r *Registry) Destruct() error {
	r.mu.Lock()
	if r.closing {
		r.mu.Unlock()
		return nil
	}
	r.closing = true
	doors := r.doors
	all := make([]*session, 0, len(r.sessions))
	for _, s := range r.sessions {
		all = append(all, s)
	}
	r.mu.Unlock()

	var errs []error
	if doors != nil {
		errs = append(errs, doors.shut())
	}
	var ending sync.WaitGroup
	for _, s := range all {
		ending.Go(func() { s.end(endClosing) })
	}
	ending.Wait()
	r.audit.close()
	// Only now do the streams end: they have shown how the sessions did.
	r.hub.close()
	r.cancel()
	if doors != nil {
		errs = append(errs, doors.hangUp())
	}
	r.tasks.Wait()
	return errors.Join(errs...)
}
