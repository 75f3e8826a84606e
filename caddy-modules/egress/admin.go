package egress

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
)

func init() {
	caddy.RegisterModule(Admin{})
}

// Admin shows and ends sessions on Caddy's admin endpoint.
//
//	GET    /egress/sessions       all of them
//	GET    /egress/sessions/{id}  one
//	DELETE /egress/sessions/{id}  end it: its tunnels, its listeners, its token
//
// It cannot open one: sessions are opened on the control and lease sockets,
// where the kernel says who asks.
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.egress",
		New: func() caddy.Module { return new(Admin) },
	}
}

// Provision registers the metrics. The app does as well, but the admin server of
// a configuration that fails stays up, perhaps without the app ever having been
// reached, and /metrics would then show none of ours.
func (*Admin) Provision(ctx caddy.Context) error { return registerMetrics(ctx.GetMetricsRegistry()) }

// Routes returns the admin routes.
func (Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: "/egress/sessions", Handler: caddy.AdminHandlerFunc(adminList)},
		{Pattern: "/egress/sessions/{id}", Handler: caddy.AdminHandlerFunc(adminOne)},
	}
}

// The admin server of a configuration stays up when that configuration fails to
// load, so the registry is looked up for each request and never kept.

func adminList(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return apiError(http.StatusMethodNotAllowed, "method %s is not allowed here; GET is", r.Method)
	}
	registry := current()
	if registry == nil {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errNoApp}
	}
	list := registry.Snapshot()
	if list == nil {
		list = []lease.Info{} // "[]", never "null"
	}
	session.WriteJSON(w, http.StatusOK, list)
	return nil
}

func adminOne(w http.ResponseWriter, r *http.Request) error {
	registry := current()
	if registry == nil {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errNoApp}
	}
	id := r.PathValue("id")
	switch r.Method {
	case http.MethodGet:
		info, ok := registry.Lookup(id)
		if !ok {
			return apiError(http.StatusNotFound, "no session %q", id)
		}
		session.WriteJSON(w, http.StatusOK, info)
		return nil
	case http.MethodDelete:
		// Without a look first: one that is being opened can be ended too, and one
		// that is on its way back is remembered.
		if err := registry.Close(id); err != nil {
			return apiError(http.StatusNotFound, "no session %q", id)
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return apiError(http.StatusMethodNotAllowed, "method %s is not allowed here; GET and DELETE are", r.Method)
}

func apiError(status int, format string, args ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, args...)}
}

// Interface guards
var (
	_ caddy.AdminRouter = (*Admin)(nil)
	_ caddy.Provisioner = (*Admin)(nil)
)
