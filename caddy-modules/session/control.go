package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"postern/caddy-modules/session/lease"
)

// readFor bounds the arrival of a request body, writeFor that of one piece of an
// answer at a client that is slow to read.
const (
	readFor  = 5 * time.Second
	writeFor = 10 * time.Second
)

// State is the answer to GET /v1/state.
type State struct {
	// Born differs for every process. A host that sees another one opens its
	// sessions again.
	Born    string    `json:"born"`
	Started time.Time `json:"started"`
	PID     int       `json:"pid"`
	UID     int       `json:"uid"`

	Sessions      int      `json:"sessions"`
	Policies      []string `json:"policies"`
	DefaultPolicy string   `json:"defaultPolicy"`
	LocalHosts    []string `json:"localHosts"`
	Networks      []string `json:"networks"` // names of the sandbox network that are served
	Ports         string   `json:"ports"`

	// EventsDropped counts events that a reader was too slow for.
	EventsDropped uint64 `json:"eventsDropped"`
	// TokensNotRevoked counts read tokens that outlived their session.
	TokensNotRevoked uint64 `json:"tokensNotRevoked"`
}

// Handler is the control API, without the check of who asks: Listen puts that
// before it.
//
//	PUT    /v1/sessions/{id}  open a session: 201, or 200 when it is open already
//	GET    /v1/sessions/{id}  one session
//	PATCH  /v1/sessions/{id}  change its policy, network, allowlist or limits: 200
//	DELETE /v1/sessions/{id}  end it: 204 when nothing of it is left
//	GET    /v1/sessions/{id}/policy          what it may reach, ?as=prompt for a text
//	GET    /v1/sessions/{id}/grants          what is granted to it besides
//	POST   /v1/sessions/{id}/grants          grant more: 201
//	DELETE /v1/sessions/{id}/grants/{grant}  take it back: 204
//	GET    /v1/sessions       all of them
//	GET    /v1/state          what this process is
//	GET    /healthz           {"status":"ok"}
//	GET    /v1/events         what happens, a JSON object a line; ?session=ID for one
//
// Errors are {"code":…,"message":…}. What Mount added is served as well.
func (r *Registry) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/sessions/{id}", Methods{"PUT": r.putSession, "GET": r.getSession, "DELETE": r.deleteSession, "PATCH": r.patchSession})
	mux.Handle("/v1/sessions/{id}/grants", Methods{"GET": r.listGrants, "POST": r.postGrant})
	mux.Handle("/v1/sessions/{id}/grants/{grant}", Methods{"DELETE": r.deleteGrant})
	mux.Handle("/v1/sessions/{id}/policy", Methods{"GET": r.getPolicy})
	mux.Handle("/v1/sessions", Methods{"GET": r.listSessions})
	mux.Handle("/v1/state", Methods{"GET": r.getState})
	// That it answers is all there is to say: nothing of sessions, policies or sandboxes.
	mux.Handle("/healthz", Methods{"GET": func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	}})
	mux.Handle("/v1/events", Methods{"GET": r.streamEvents})
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		if h := r.routes.find(req.URL.Path); h != nil {
			h.ServeHTTP(w, req)
			return
		}
		Nothing(w, req)
	})
	return mux
}

func (r *Registry) putSession(w http.ResponseWriter, req *http.Request) {
	var spec lease.Spec
	if !readBody(w, req, func(body io.Reader) (err error) {
		spec, err = lease.DecodeBody(body, req.PathValue("id"))
		return err
	}) {
		return
	}
	answer, made, err := r.put(req.Context(), spec, peerUID(req.Context()))
	if err != nil {
		WriteError(w, err)
		return
	}
	answer.Handle = spec.Handle(answer.Session)
	status := http.StatusOK
	if made {
		status = http.StatusCreated
	}
	WriteJSON(w, status, answer)
}

// readBody reads what came with a request, and says whether it could: the answer is
// given otherwise. It is bounded here and not in the server, since event streams have
// no end. After an error the bound stays, for the server then reads what is left of
// the body; after success it must not cut the wait for a token.
func readBody(w http.ResponseWriter, req *http.Request, decode func(io.Reader) error) bool {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(readFor))
	err := decode(http.MaxBytesReader(w, req.Body, lease.MaxMessage))
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{})
		return true
	}
	refusal := &lease.Error{Code: lease.CodeBadRequest, Message: err.Error()}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		refusal.Code = lease.CodeTooLarge
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		refusal.Code = lease.CodeTimeout
	}
	WriteError(w, refusal)
	return false
}

func (r *Registry) getSession(w http.ResponseWriter, req *http.Request) {
	info, ok := r.Lookup(req.PathValue("id"))
	if !ok {
		WriteError(w, noSession(req.PathValue("id")))
		return
	}
	WriteJSON(w, http.StatusOK, info)
}

func (r *Registry) deleteSession(w http.ResponseWriter, req *http.Request) {
	if err := r.Close(req.PathValue("id")); err != nil {
		WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *Registry) listSessions(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusOK, map[string][]Info{"sessions": r.Snapshot()})
}

func (r *Registry) getState(w http.ResponseWriter, _ *http.Request) {
	s := State{
		Born: r.born, Started: r.started, PID: os.Getpid(), UID: os.Geteuid(),
		Sessions: len(r.Snapshot()), Policies: []string{}, LocalHosts: []string{}, Networks: r.network.listening(),
		Ports:         fmt.Sprintf("%d-%d", r.ports.first, r.ports.last),
		EventsDropped: r.hub.dropped.Load(), TokensNotRevoked: r.unrevoked.Load(),
	}
	if g := r.governing.Load(); g != nil {
		s.Policies = slices.AppendSeq(s.Policies, maps.Keys(g.Policies))
		slices.Sort(s.Policies)
		s.DefaultPolicy = g.DefaultPolicy
		s.LocalHosts = append(s.LocalHosts, g.LocalHosts...)
	}
	if s.Networks == nil {
		s.Networks = []string{}
	}
	WriteJSON(w, http.StatusOK, s)
}

// streamEvents sends events until the client goes or the process ends. The head
// of the answer is sent at once: a client that has it misses nothing from then on.
func (r *Registry) streamEvents(w http.ResponseWriter, req *http.Request) {
	id := req.URL.Query().Get("session")
	if id != "" {
		if err := lease.ValidateID(id); err != nil {
			WriteError(w, &lease.Error{Code: lease.CodeBadRequest, Message: err.Error()})
			return
		}
	}
	events := r.hub.subscribe(id, streamQueue)
	defer events.cancel()
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Postern-Born", r.born)
	w.WriteHeader(http.StatusOK)
	if rc.Flush() != nil {
		return
	}
	enc := json.NewEncoder(w)
	_ = events.each(req.Context().Done(), func(e lease.Event) error {
		// A client that stops reading would otherwise hold this goroutine.
		_ = rc.SetWriteDeadline(time.Now().Add(writeFor))
		if err := enc.Encode(e); err != nil {
			return err
		}
		return rc.Flush()
	})
}
