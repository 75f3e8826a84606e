package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session"
	"postern/dnsguard"
	"postern/gitgw/mint"
)

const moduleID = "egress"

func init() {
	caddy.RegisterModule(new(App))
}

// App gives every sandboxed run its own pair of HTTP and SOCKS5 proxies, and
// decides what those may reach.
//
// A run is a session. Sessions are opened by launchers, which lend the listeners
// of their sandbox over `lease.sock`, or by a host over the control API on
// `control.sock`; both are in the run directory. A session names one of the
// policies below. Sessions outlive reloads: a new configuration governs new
// connections as soon as it starts, and cuts the open tunnels it does not allow
// when it has replaced the old one. A configuration that fails to load changes
// nothing.
//
// The order of a decision is fixed: the appliance's own listeners and
// `always_deny`, then `deny`, then `allow`. Only a name that is allowed is looked
// up, and each address of the answer is judged again before it is dialled.
//
// Refusals are emitted as the event `egress_denied`, questions about hosts and their
// answers as `egress_asked` and `egress_answered`, pushes through a git gateway
// as `git_push`, sessions as `egress_session_open` and `egress_session_close`, and what
// launchers tell of their runs as `sandbox_ready`, `sandbox_violation`,
// `sandbox_killed` and `sandbox_exit`.
type App struct {
	// The policy of sessions that name none. Default: the only policy there is;
	// where there are several, it must be given.
	DefaultPolicy string `json:"default_policy,omitempty"`

	// Names that the appliance answers itself, with the site bound to the network
	// `sandbox`. They are reachable even with the network of a session off.
	// Default: none.
	LocalHosts []string `json:"local_hosts,omitempty"`

	// What no policy and no session may open. Default: the built-in list of
	// metadata services and telemetry sinks. The addresses of metadata services
	// are refused in any case.
	AlwaysDeny []Rule `json:"always_deny,omitempty"`

	// The policies by name. Default: one, `agent`, with the built-in baseline.
	Policies map[string]*Policy `json:"policies,omitempty"`

	// Whom to ask for addresses. Default: the resolvers of the system.
	DNS *DNS `json:"dns,omitempty"`

	// Settings of sessions opened over the control API.
	Sessions *Sessions `json:"sessions,omitempty"`

	// Bounds of what a connection may take.
	Timeouts *Timeouts `json:"timeouts,omitempty"`

	// What one session may have open and move. Default: no bounds.
	Limits *Limits `json:"limits,omitempty"`

	// Another proxy that what is allowed goes through. Default: none. Settings of the
	// environment do not count.
	Upstream *Upstream `json:"upstream,omitempty"`

	// What is done with the server name that a tunnel to port 443 asks for:
	// `enforce` refuses it unless it is the host of the CONNECT, `log` records it,
	// `off` does not look. Default: `enforce`.
	SNI string `json:"sni,omitempty"`

	// Who is asked about hosts that a policy asks about first. Default: the approver of
	// the git gateway; where there is none, such hosts are refused.
	ApproverRaw json.RawMessage `json:"approver,omitempty" caddy:"namespace=gitgw.approvers inline_key=by"`

	// What programs that run agents are told of this host's sandbox. Default: what a
	// probe finds.
	Sandbox *Sandbox `json:"sandbox,omitempty"`

	ctx    caddy.Context
	log    *slog.Logger
	events *caddyevents.App

	registry *session.Registry
	ledger   *mint.Ledger
	probing  *probing
	names    *dnsguard.Store
	guard    *dnsguard.Guard

	ownApprover *namedApprover         // of ApproverRaw
	always      map[string]fs.FileInfo // the lists for approvals as they were when read

	mu        sync.Mutex          // guards what follows
	gen       *session.Generation // another one when lists were read again
	broker    session.Broker
	forges    []string
	approvers []namedApprover // of the gateways
	rereaders []func(error)
	stopped   bool
	released  bool
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  moduleID,
		New: func() caddy.Module { return new(App) },
	}
}

// Provision compiles the configuration. It opens and creates nothing: `caddy
// validate` comes this far.
func (app *App) Provision(ctx caddy.Context) error {
	app.ctx = ctx
	app.log = ctx.Slogger()

	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("get events app: %w", err)
	}
	app.events = events.(*caddyevents.App)
	if err := app.events.On("started", startedHandler{app}); err != nil {
		return fmt.Errorf("subscribe to started: %w", err)
	}
	if err := registerMetrics(ctx.GetMetricsRegistry()); err != nil {
		return err
	}

	process, err := acquire(app.Sessions.ports())
	if err != nil {
		return err
	}
	app.registry, app.ledger, app.probing = process.Registry, process.ledger, process.probing
	app.names = process.names
	app.always = app.statAlways() // before they are read
	if app.gen, err = app.generation(); err != nil {
		return err
	}
	if err := app.checkAlways(); err != nil {
		return err
	}
	if err := app.Upstream.checkSecret(); err != nil {
		return err
	}
	return app.loadApprover()
}

// Start lets this configuration govern and, once in the life of the process,
// opens the control and lease sockets.
func (app *App) Start() error {
	if err := app.setOwn(); err != nil {
		return err
	}
	app.mu.Lock()
	app.gen.Broker, app.gen.Forges = app.broker, app.forges
	gateway := len(app.forges) > 0
	app.mu.Unlock()
	if _, err := RunDir(true); err != nil {
		return err
	}
	if gateway {
		// What a killed process left is revoked from here on; nothing is minted
		// before.
		if err := app.ledger.Open(); err != nil {
			return err
		}
	}
	if err := app.setApprovals(); err != nil {
		return err
	}
	app.registry.Push(app.gen)
	app.catchUp()
	// Rules before doors: the first launcher to knock must meet a policy.
	if err := app.registry.Listen(); err != nil {
		return fmt.Errorf("open the appliance's sockets: %w", err)
	}
	app.probing.start(app.Sandbox, app.registry, app.log)
	return nil
}

// Stop ends this configuration's rule. If a newer one governs by now, open
// tunnels are held to it; if not, this one was rolled back.
func (app *App) Stop() error {
	if caddy.Exiting() {
		// The sessions end a moment later, with the registry. That nothing governs
		// them meanwhile would be news to every launcher, and of no use.
		return nil
	}
	app.registry.Drop(app.retire())
	app.registry.SetOwn(app, nil)
	return nil
}

// Cleanup does what Stop does, for the failures after which Caddy does not call
// Stop, and lets go of the registry, which goes with the last of its users.
func (app *App) Cleanup() error {
	app.mu.Lock()
	done := app.released || app.registry == nil
	app.released = true
	compiled := app.gen != nil
	app.mu.Unlock()
	if done {
		return nil
	}
	var err error
	if compiled {
		err = app.Stop()
	}
	if guard := app.guard; guard != nil {
		// Lookups under way go on, as the requests do that wait for them.
		time.AfterFunc(linger, func() { _ = guard.Close() })
	}
	return errors.Join(err, release())
}

// Registry returns the sessions of this process. It is the same one for every
// configuration, so a handler may go on using it after a reload.
func (app *App) Registry() *session.Registry { return app.registry }

// Ledger returns what remembers the tokens of this process, for the minter of a
// gateway. It too is the same one for every configuration, and open when one with
// a gateway has started.
func (app *App) Ledger() *mint.Ledger { return app.ledger }

// generation compiles what this configuration says.
func (app *App) generation() (*session.Generation, error) {
	policies, name, err := app.compile(app.registry.Own, true)
	if err != nil {
		return nil, err
	}
	app.tellDead(policies)
	mode, err := parseSNI(app.SNI)
	if err != nil {
		return nil, err
	}
	if err := app.Timeouts.validate(); err != nil {
		return nil, err
	}
	if err := app.Sandbox.validate(); err != nil {
		return nil, err
	}
	locals, err := app.locals()
	if err != nil {
		return nil, err
	}
	if app.guard, err = app.DNS.guard(dnsguard.Config{Store: app.names, LocalHosts: locals, Record: app.registry.Judged, Log: app.log}); err != nil {
		return nil, err
	}
	stub, stub6, err := app.DNS.stub()
	if err != nil {
		return nil, err
	}
	parent, err := app.Upstream.parent()
	if err != nil {
		return nil, err
	}
	limits := app.Timeouts.limits()
	if err := app.Limits.bound(&limits); err != nil {
		return nil, err
	}
	caps, err := app.policyCaps()
	if err != nil {
		return nil, err
	}
	return &session.Generation{
		Policies:      policies,
		DefaultPolicy: name,
		Guard:         app.guard,
		Stub:          stub,
		FakeIPv6:      stub6,
		Limits:        limits,
		PolicyCaps:    caps,
		Parent:        parent,
		SNI:           mode,
		LocalHosts:    locals,
		Log:           app.log,
		Emit:          app.emit,
	}, nil
}

// tellDead logs the rules that a deny list closes. They are no mistake, since
// that is how a host is taken out of an imported list, and still worth knowing. So are
// those that others cover and those that stand twice.
func (app *App) tellDead(policies map[string]*policy.Set) {
	const most = 10
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		for i, d := range policies[name].Dead() {
			if i == most {
				break
			}
			app.log.LogAttrs(app.ctx, slog.LevelInfo, "rule changes nothing", slog.String("policy", name), slog.String("reason", d.Reason))
		}
		for _, d := range policies[name].Shadowed(most) {
			app.log.LogAttrs(app.ctx, slog.LevelInfo, "rule changes nothing", slog.String("policy", name), slog.String("reason", d.Reason))
		}
	}
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

var _ policy.OwnFunc = (*session.Registry)(nil).Own
