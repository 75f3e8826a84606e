package gitgateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
	"postern/gitgw"
)

// serveReadToken gives a session its own read token, renewed where it is about to
// expire, for git's credential helper inside the run. It is the same that stands
// in the run's environment, or one that may do the same: whoever can ask has it
// already. Tokens that write never come this way.
func (h *Handler) serveReadToken(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, reason string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(gitgw.RedactLine(reason) + "\n")) //nolint:gosec // plain text, and nosniff
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	caller, ok := h.caller(r)
	switch {
	case !ok:
		refuse(http.StatusForbidden, "this connection belongs to no run")
		return
	case r.Method != http.MethodGet:
		header.Set("Allow", http.MethodGet)
		refuse(http.StatusMethodNotAllowed, "a read token is asked for with GET")
		return
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Mode") != "":
		refuse(http.StatusForbidden, "a read token is for git, not for pages")
		return
	}
	host, err := onlyParameter(r, "host")
	if err != nil {
		refuse(http.StatusBadRequest, err.Error())
		return
	}
	if caller.Own.IsZero() || !strings.EqualFold(host, caller.Own.Host()) {
		refuse(http.StatusNotFound, "the run has no read token for "+host)
		return
	}
	value, expires, err := h.sessions.FreshReadToken(r.Context(), caller.Session)
	if errors.Is(err, session.ErrNoReadToken) {
		refuse(http.StatusNotFound, "the run has no read token for "+host)
		return
	}
	if err != nil {
		refuse(http.StatusServiceUnavailable, err.Error())
		return
	}
	body, err := json.Marshal(lease.ReadToken{Token: value, Expires: expires})
	if err != nil {
		refuse(http.StatusInternalServerError, "the read token cannot be encoded")
		return
	}
	header.Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

// onlyParameter reads the query's one parameter.
func onlyParameter(r *http.Request, name string) (string, error) {
	query := r.URL.Query()
	if len(query) != 1 || len(query[name]) != 1 || query[name][0] == "" {
		return "", errors.New("want ?" + name + "=…, once, and nothing else")
	}
	return query[name][0], nil
}
