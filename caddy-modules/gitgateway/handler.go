package gitgateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"postern/caddy-modules/egress"
	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
	"postern/gitgw"
)

func init() {
	caddy.RegisterModule(Handler{})
}

// Handler is the git remote of sandboxed runs, and lets through the pushes that
// its rules allow.
//
// A run pushes to `http://git.internal/HOST/OWNER/NAME.git`. The gateway reads
// which refs the push would update, asks its rules and, where they say so, an
// approver, and only then obtains a token that may write to this one repository,
// streams the push to the forge, and revokes the token. The run never sees it.
// What is refused is refused as git itself refuses, with a reason:
//
//	! [remote rejected] main -> main (Control Center policy: …)
//
// A push may go to the session's own repository and to those linked to its
// workspace. The site must be bound to the network `sandbox`, because a
// connection there is known to be a session's; any other client is refused.
// Handlers that buffer or encode bodies do not belong on the same route.
type Handler struct {
	// Where tokens for the forge come from. They are minted for a single push,
	// and for the read token that a session may hold. Default: none; then pushes
	// that the rules allow fail, and say so.
	TokenRaw json.RawMessage `json:"token,omitempty" caddy:"namespace=gitgw.minters inline_key=from"`

	// Where the host keeps rules of its own. Of two verdicts, its and that of the
	// rules here, the stricter counts; of a repository that no rule here names, it
	// decides alone. Without an answer nothing is pushed. Default: none.
	RulesRaw json.RawMessage `json:"rules,omitempty" caddy:"namespace=gitgw.rules inline_key=from"`

	// Who is asked about pushes that `ask` rules are about. Default: nobody; then
	// they are refused.
	ApproverRaw json.RawMessage `json:"approver,omitempty" caddy:"namespace=gitgw.approvers inline_key=by"`

	// The forges that repositories may name. Default: github.com.
	Forges []Forge `json:"forges,omitempty"`

	// The repositories that may be pushed to, with the rules for their refs.
	// Default: none.
	Repos []Repo `json:"repos,omitempty"`

	// Whether uploads of Git LFS are carried, by the rule of the ref that they are
	// for: `on` or `off`. Default: `on`.
	LFS string `json:"lfs,omitempty"`

	// Where packs are kept while rules look into them, and how much of them. Default: a
	// folder in the run directory.
	Spool *Spool `json:"spool,omitempty"`

	// What every refusal begins with. Default: `Control Center policy`.
	Prefix string `json:"prefix,omitempty"`

	// Where the directive and its parts were written. Default: not known.
	Places Places `json:"places,omitzero"`

	gateway  *gitgw.Gateway
	sessions *session.Registry
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.git_gateway",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision compiles the rules and loads the minter and the approver.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := onSandbox(ctx); err != nil {
		return placed(h.Places.Gateway, err)
	}
	v, err := ctx.AppIfConfigured("egress")
	if err != nil {
		return placed(h.Places.Gateway, fmt.Errorf("find the sessions that may push (add an egress block to the global options): %w", err))
	}
	app := v.(*egress.App)
	h.sessions = app.Registry()

	rules, forges, err := h.compile()
	if err != nil {
		return err
	}
	if err := h.checkLFS(); err != nil {
		return err
	}
	if h.Prefix != "" {
		if err := checkLine("prefix", h.Prefix); err != nil {
			return err
		}
	}
	log := ctx.Slogger()
	h.gateway = &gitgw.Gateway{
		Forges: forges,
		Rules:  rules,
		Prefix: h.Prefix,
		NoLFS:  h.LFS == "off",
		Vet:    vet,
		Record: func(p gitgw.Push) { record(h.sessions, log, p) },
		Log:    log,
	}
	if err := h.provisionSpool(); err != nil {
		return placed(h.Places.Spool, err)
	}
	hosts := hostsOf(forges)
	var tokens session.Broker
	if h.TokenRaw != nil {
		mod, err := ctx.LoadModule(h, "TokenRaw")
		if err != nil {
			return placed(h.Places.Token, fmt.Errorf("load token: %w", err))
		}
		source := mod.(MinterSource)
		minter, err := source.NewMinter(forges)
		if err != nil {
			return placed(h.Places.Token, fmt.Errorf("load token: %w", err))
		}
		// Every token, a push's and a session's, is recorded before it is used: a
		// process that is killed revokes nothing itself.
		h.gateway.Minter = app.Ledger().Wrap(minter, hosts...)
		if source.Lends() {
			tokens = broker{h.gateway.Minter, forges}
		}
	}
	if err := app.AddGateway(hosts, tokens); err != nil {
		return placed(h.Places.Gateway, err)
	}
	if err := reachable(ctx, app.LocalHosts); err != nil {
		return placed(h.Places.Gateway, err)
	}
	if h.RulesRaw != nil {
		mod, err := ctx.LoadModule(h, "RulesRaw")
		if err != nil {
			return placed(h.Places.Rules, fmt.Errorf("load rules: %w", err))
		}
		h.gateway.Source = mod.(RuleSource).Source()
	}
	if h.ApproverRaw != nil {
		mod, err := ctx.LoadModule(h, "ApproverRaw")
		if err != nil {
			return placed(h.Places.Approver, fmt.Errorf("load approver: %w", err))
		}
		approver := mod.(ApproverSource)
		if m, ok := mod.(egress.Mounter); ok {
			m.Mount(h.sessions)
		}
		app.AddApprover(approver.Name(), approver.Approver(), approver.Wait())
		h.gateway.Approver, h.gateway.ApproverName = approver.Approver(), approver.Name()
		h.gateway.Approvals = approvals
		h.gateway.Limits.Ask, h.gateway.Limits.Remember = approver.Wait(), approver.Remember()
	}
	return nil
}

// reachable refuses a gateway that no session gets to: a local host is answered by the
// site that is bound to its first label, and a slip there is found by the first push.
func reachable(ctx caddy.Context, locals []string) error {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return nil // in no server: a test
	}
	var names []string
	for _, host := range locals {
		label, _, _ := strings.Cut(strings.ToLower(host), ".")
		names = append(names, label)
	}
	for _, text := range server.Listen {
		addr, err := caddy.ParseNetworkAddress(text)
		if err != nil {
			return err
		}
		if !slices.Contains(names, addr.Host) {
			return fmt.Errorf("git_gateway is bound to sandbox/%s, and no local host of the egress block begins with that; bind it to sandbox/%s", addr.Host, strings.Join(names, " or sandbox/"))
		}
	}
	return nil
}

// onSandbox refuses a gateway that others than sessions could talk to. It would
// refuse each of them, which is found out late.
func onSandbox(ctx caddy.Context) error {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return nil // in no server: a test
	}
	for _, text := range server.Listen {
		addr, err := caddy.ParseNetworkAddress(text)
		if err != nil {
			return err
		}
		if addr.Network != egress.Network {
			return fmt.Errorf("git_gateway would listen on %s, where nobody is known to be a session; begin its site with `bind sandbox/git`", text)
		}
	}
	return nil
}

// ServeHTTP hands the request of a session to the gateway. It is the end of its
// route: the next handler is never called.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if r.URL.Path == lease.ReadTokenPath {
		h.serveReadToken(w, r)
		return nil
	}
	// A push is answered while it is still being read, to show progress and the
	// wait for an approver; without this, HTTP/1 ends the body at the first byte
	// of the answer.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
		return caddyhttp.Error(http.StatusInternalServerError, fmt.Errorf("read and write at once: %w", err))
	}
	if caller, ok := h.caller(r); ok {
		r = r.WithContext(gitgw.WithCaller(r.Context(), caller))
	}
	// Without a caller the gateway refuses, in words that git shows.
	h.gateway.ServeHTTP(w, r)
	return nil
}

// caller finds the session a request comes from. The remote address of the
// network sandbox is the session's id; the one of a TCP connection is an IP
// address, which is never an id, as ids hold neither dots nor colons.
func (h *Handler) caller(r *http.Request) (gitgw.Caller, bool) {
	id, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return gitgw.Caller{}, false
	}
	// The life first: should another session have come by the id meanwhile, the
	// one that has ended is asked, and refuses.
	life, alive := h.sessions.Life(id)
	info, ok := h.sessions.Lookup(id)
	if !ok || !alive {
		return gitgw.Caller{}, false
	}
	caller := gitgw.Caller{
		Session:   info.ID,
		Agent:     info.Agent,
		Workspace: info.Workspace,
		ReadToken: h.readToken(info),
		Ended:     life.Ended(),
		Hold:      life.Hold,
	}
	// A repository that does not parse here, where it matters, is none: the
	// session's other pushes are not concerned by it.
	if own, err := gitgw.ParseRepo(info.Repository); err == nil {
		caller.Own = own
	}
	for _, text := range info.LinkedRepositories {
		if linked, err := gitgw.ParseRepo(text); err == nil && !slices.Contains(caller.Linked, linked) {
			caller.Linked = append(caller.Linked, linked)
		}
	}
	return caller, true
}

// readToken gives the gateway the session's own token, with which it lists the
// refs of the session's own repository. For another one there is none.
func (h *Handler) readToken(info session.Info) func(context.Context, gitgw.Repo) (gitgw.Token, bool) {
	return func(ctx context.Context, repo gitgw.Repo) (gitgw.Token, bool) {
		own, err := gitgw.ParseRepo(info.Repository)
		if err != nil || own != repo {
			return gitgw.Token{}, false
		}
		// Where there is none, the gateway mints one to look with, or says why not.
		value, expires, err := h.sessions.FreshReadToken(ctx, info.ID)
		return gitgw.NewToken(value, expires), err == nil
	}
}

// Cleanup ends what the gateway keeps for further requests. Those that are under
// way go on.
func (h *Handler) Cleanup() error {
	if h.gateway == nil {
		return nil
	}
	return h.gateway.Close()
}

// Interface guards
var (
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
