package gitgw

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Gateway answers the push half of smart HTTP under /HOST/OWNER/NAME[.git]/.
// Its fields are set before the first request and not changed after; it is safe
// for concurrent use.
type Gateway struct {
	// Forges are the hosts it pushes to. Empty means github.com alone.
	Forges []Forge
	// Rules decide. nil denies everything.
	Rules *Rules
	// Source, where there is one, judges as well; the stricter verdict counts. It
	// judges alone where no block of Rules is about the repository.
	Source Source
	// Minter makes the write tokens. Without one every push that the rules allow
	// fails, and says so.
	Minter Minter
	// Approver answers ask rules. Without one they deny.
	Approver Approver
	// ApproverName tells approvers apart: what one was asked is no other's answer.
	ApproverName string
	// Approvals remembers answers that nobody waits for any more; several gateways,
	// and those of one configuration after another, may share it. By default the
	// gateway has its own.
	Approvals *Approvals
	// Prefix begins every policy refusal, by default "Control Center policy".
	// Notices that are no policy begin with the same words without " policy".
	Prefix string
	// NoLFS refuses uploads of Git LFS, which are carried otherwise.
	NoLFS bool
	// Record gets one record for each push, from the push's own goroutine. May
	// be nil.
	Record func(Push)
	// Log gets what went wrong on the forge's side. nil discards.
	Log    *slog.Logger
	Limits Limits
	// SpoolDir is where packs are kept while rules look into them, in files without a
	// name. Default: the system's folder for temporary files. SpoolMake has it made, for
	// nobody else, where it is missing.
	SpoolDir  string
	SpoolMake bool
	// Inspections count what is kept and looked into; several gateways, and those of one
	// configuration after another, may share them. By default the gateway has its own.
	Inspections *Inspections
	// Vet says why an address is not gone to that a forge names, and that is not the
	// forge's own: where it keeps the objects of Git LFS. Without one no such address is.
	Vet func(netip.Addr) error
	// Storage reaches where forges keep those objects, where it is not their own. By
	// default one that asks Vet of each address that a name has.
	Storage http.RoundTripper
	// Transport reaches the forges. By default one that uses no proxy settings
	// of the environment. It must not follow redirects or add credentials.
	Transport http.RoundTripper

	mu       sync.Mutex
	fallback *http.Transport
	stores   *http.Transport

	budgets   budgets
	looks     looks
	lfsGrants lfsGrants
	counted   Inspections // where Inspections is nil
	approvals Approvals   // where Approvals is nil
}

var _ http.Handler = (*Gateway)(nil)

// ServeHTTP answers one request. The caller must be in its context.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, ok := CallerFrom(r.Context())
	if !ok {
		g.text(w, http.StatusForbidden, CodeNoRun, "this connection belongs to no run")
		return
	}
	// From here to the end of this request something is done in the run's name,
	// and everything hangs on the run's life as well as on the client's.
	ctx, release, ok := caller.begin(r.Context())
	if !ok {
		g.text(w, http.StatusForbidden, CodeRunEnded, errRunEnded.Error())
		return
	}
	defer release()
	r = r.WithContext(ctx)
	route, err := parseRoute(r)
	if err != nil {
		g.text(w, http.StatusNotFound, CodeRoute, err.Error())
		return
	}
	forge, ok := g.forge(route.repo.Host())
	if !ok {
		g.text(w, http.StatusNotFound, CodeForgeForeign, route.repo.Host()+" is not a forge that this gateway knows")
		return
	}
	up := &upstream{forge: forge, repo: route.repo, rt: g.transport(), silence: g.Limits.withDefaults().Upstream}
	switch route.service {
	case serviceRefs:
		// git shows this text; for a push that is refused here it asks no further.
		if !caller.mayName(route.repo) {
			g.refuseRefs(w, r, caller, route.repo, nil)
			return
		}
		g.advertise(w, r, caller, up)
	case serviceReceive:
		g.receivePack(w, r, caller, up)
	case serviceFetch:
		g.text(w, http.StatusForbidden, CodeFetch, "this gateway takes pushes only; fetch from "+forge.Host)
	case serviceDumb:
		g.text(w, http.StatusForbidden, CodeDumb, "this gateway speaks smart HTTP only (is GIT_SMART_HTTP set?)")
	case serviceLFSLocks, serviceLFSBatch, serviceLFSUpload, serviceLFSVerify:
		g.lfs(w, r, caller, up, route)
	default:
		g.text(w, http.StatusMethodNotAllowed, CodeMethod, "method "+printable(r.Method, 16)+" is not used here")
	}
}

// refuseRefs answers a request for refs that leads to no push: err says why the
// forge did not list them, nil means that the repository is not the caller's.
// It is the push's only request, so it is also where its record is written.
func (g *Gateway) refuseRefs(w http.ResponseWriter, r *http.Request, caller Caller, repo Repo, err error) {
	record := Push{
		Time: time.Now(), Session: caller.Session, Agent: caller.Agent, Workspace: caller.Workspace,
		Repository: repo, Outcome: Refused, Code: CodeForeign, Reason: g.foreign(repo),
	}
	status := http.StatusForbidden
	if err != nil {
		if caller.ended() {
			g.text(w, http.StatusForbidden, CodeRunEnded, errRunEnded.Error())
			return
		}
		if r.Context().Err() != nil {
			return // nobody is there to read it
		}
		g.log().Warn("refs not listed", attrs(caller, repo, err)...)
		status, record.Outcome, record.Code = http.StatusBadGateway, Failed, CodeRefs
		record.Reason = err.Error()
		if told, ok := errors.AsType[*MintError](err); ok {
			record.Reason, record.Code = told.Reason, CodeNoToken
		}
		if up, ok := errors.AsType[*upstreamError](err); ok {
			record.UpstreamStatus = up.status
		}
	}
	record.Reason = (&redactor{}).line(record.Reason)
	g.recorded(record)
	g.text(w, status, record.Code, record.Reason)
}

// text answers a request that is not the POST of a push. git shows text/plain
// as `remote:` lines, and nothing of other types.
func (g *Gateway) text(w http.ResponseWriter, status int, code Code, reason string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(status)
	//nolint:gosec // text/plain with nosniff: no browser makes markup of it
	_, _ = w.Write([]byte(g.notice((&redactor{}).line(reason)) + "\n" + g.notice(code.cure()) + "\n"))
}

// policy words a refusal that a rule or an approver made.
func (g *Gateway) policy(reason string) string { return g.prefix() + ": " + reason }

// notice words everything else, so that people do not look for a rule.
func (g *Gateway) notice(reason string) string {
	return strings.TrimSuffix(g.prefix(), " policy") + ": " + reason
}

func (g *Gateway) prefix() string { return orDefault(g.Prefix, "Control Center policy") }

// foreign is why a repository is not pushed to at all.
func (g *Gateway) foreign(repo Repo) string {
	return repo.FullName() + " is not this run's repository or a linked one"
}

func (g *Gateway) forge(host string) (Forge, bool) {
	if len(g.Forges) == 0 && host == "github.com" {
		return GitHub(), true
	}
	for _, f := range g.Forges {
		if f.Host == host {
			return f, true
		}
	}
	return Forge{}, false
}

// transport reaches the forges. HTTP/1.1 only: a pack streamed over HTTP/2 is
// held to windows that make large pushes slower, and gains nothing.
func (g *Gateway) transport() http.RoundTripper {
	if g.Transport != nil {
		return g.Transport
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fallback == nil {
		g.fallback = &http.Transport{
			Proxy:               nil,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: 8,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true, // what comes is what the forge sent
			WriteBufferSize:     64 << 10,
			ReadBufferSize:      64 << 10,
			Protocols:           http1(),
		}
	}
	return g.fallback
}

func http1() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	return &p
}

// Close revokes the tokens that are kept for further listings, withdraws questions
// that nobody waits for (those of shared Approvals stay) and drops idle connections
// to the forges. Pushes under way go on, and a request that comes late
// is still served: a server that reloads its configuration lets the old handler
// finish.
func (g *Gateway) Close() error {
	g.looks.close()
	g.lfsGrants.close()
	_ = g.approvals.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fallback != nil {
		g.fallback.CloseIdleConnections()
	}
	if g.stores != nil {
		g.stores.CloseIdleConnections()
	}
	return nil
}

func (g *Gateway) log() *slog.Logger {
	if g.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return g.Log
}

// recorded writes a push's record and its one line in the log.
func (g *Gateway) recorded(p Push) {
	(&redactor{}).scrub(&p)
	g.log().Info("push", slog.Any("push", p))
	if g.Record != nil {
		g.Record(p)
	}
}

// attrs says whose trouble it is. The error's text is cleaned here, since it
// may hold what a forge sent.
func attrs(c Caller, repo Repo, err error) []any {
	return []any{
		slog.String("session", c.Session),
		slog.String("repository", repo.String()),
		slog.String("error", (&redactor{}).text(err.Error())),
	}
}
