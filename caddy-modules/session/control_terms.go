package session

import (
	"io"
	"net/http"

	"postern/caddy-modules/session/lease"
)

func (r *Registry) patchSession(w http.ResponseWriter, req *http.Request) {
	var p Patch
	if !readBody(w, req, func(body io.Reader) error { return lease.Decode(body, &p) }) {
		return
	}
	info, err := r.Patch(req.PathValue("id"), p) //nolint:contextcheck // it outlives the request
	if err != nil {
		WriteError(w, err)
		return
	}
	WriteJSON(w, http.StatusOK, info)
}

func (r *Registry) listGrants(w http.ResponseWriter, req *http.Request) {
	grants, err := r.Grants(req.PathValue("id"))
	if err != nil {
		WriteError(w, err)
		return
	}
	WriteJSON(w, http.StatusOK, map[string][]Grant{"grants": grants})
}

func (r *Registry) postGrant(w http.ResponseWriter, req *http.Request) {
	var q GrantRequest
	if !readBody(w, req, func(body io.Reader) error { return lease.Decode(body, &q) }) {
		return
	}
	given, err := r.Grant(req.PathValue("id"), q) //nolint:contextcheck // it outlives the request
	if err != nil {
		WriteError(w, err)
		return
	}
	WriteJSON(w, http.StatusCreated, given)
}

func (r *Registry) deleteGrant(w http.ResponseWriter, req *http.Request) {
	if err := r.Revoke(req.PathValue("id"), req.PathValue("grant")); err != nil { //nolint:contextcheck // it outlives the request
		WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// getPolicy answers with the rules in force, or with a text for an agent.
func (r *Registry) getPolicy(w http.ResponseWriter, req *http.Request) {
	as := req.URL.Query().Get("as")
	if as != "" && as != "json" && as != "prompt" {
		WriteError(w, &lease.Error{Code: lease.CodeBadRequest, Message: "the policy is shown as=json or as=prompt"})
		return
	}
	e, err := r.Policy(req.PathValue("id"))
	if err != nil {
		WriteError(w, err)
		return
	}
	if as == "prompt" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, e.Prompt())
		return
	}
	WriteJSON(w, http.StatusOK, e)
}
