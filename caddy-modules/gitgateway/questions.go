package gitgateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
	"postern/gitgw"
	"postern/gitgw/approve"
	"postern/gitgw/local"
)

// approvalsPath is where the queue is on the control socket.
const approvalsPath = "/v1/approvals"

// Bounds of the control socket's clients.
const (
	maxAnswer = 64 << 10
	writeFor  = 10 * time.Second
	readFor   = 5 * time.Second
)

// questionsHandler serves a queue. Who may ask at all has been checked by the
// control socket: only this process's own user comes in.
func questionsHandler(q *approve.Queue) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(approvalsPath, session.Methods{"GET": func(w http.ResponseWriter, r *http.Request) {
		if wantsStream(r) {
			streamQuestions(w, r, q)
			return
		}
		session.WriteJSON(w, http.StatusOK, map[string][]gitgw.Question{"approvals": q.Open()})
	}})
	mux.Handle(approvalsPath+"/events", session.Methods{"GET": func(w http.ResponseWriter, r *http.Request) { streamQuestions(w, r, q) }})
	mux.Handle(approvalsPath+"/{id}", session.Methods{"POST": func(w http.ResponseWriter, r *http.Request) { answerQuestion(w, r, q) }})
	mux.HandleFunc("/", session.Nothing)
	return mux
}

// streamQuestions tells of questions for as long as the client stays. It is the
// client's presence that makes the queue connected.
func streamQuestions(w http.ResponseWriter, r *http.Request, q *approve.Queue) {
	l := q.Listen()
	defer l.Close()
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	enc := json.NewEncoder(w)
	for err := rc.Flush(); err == nil; err = rc.Flush() {
		e, gone := l.Next(r.Context())
		if gone != nil {
			return
		}
		// A client that stops reading would otherwise count as a listener.
		_ = rc.SetWriteDeadline(time.Now().Add(writeFor))
		if enc.Encode(e) != nil {
			return
		}
	}
}

func answerQuestion(w http.ResponseWriter, r *http.Request, q *approve.Queue) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readFor))
	answer, err := decodeAnswer(http.MaxBytesReader(w, r.Body, maxAnswer))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err != nil {
		session.WriteError(w, &lease.Error{Code: lease.CodeBadRequest, Message: err.Error()})
		return
	}
	if err := q.Answer(r.PathValue("id"), answer); errors.Is(err, approve.ErrNoQuestion) {
		session.WriteError(w, &lease.Error{Code: lease.CodeNotFound, Message: err.Error()})
		return
	} else if errors.Is(err, approve.ErrScope) {
		session.WriteError(w, &lease.Error{Code: lease.CodeBadRequest, Message: err.Error()})
		return
	} else if err != nil {
		session.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// wantsStream reports whether a request for the questions wants those to come as
// well: it accepts lines of JSON, or says so in its query.
func wantsStream(r *http.Request) bool {
	if r.URL.Query().Has("stream") {
		return true
	}
	for _, header := range r.Header.Values("Accept") {
		for word := range strings.SplitSeq(header, ",") {
			if kind, _, err := mime.ParseMediaType(word); err == nil && kind == "application/x-ndjson" {
				return true
			}
		}
	}
	return false
}

// decodeAnswer is as strict as that of an approver over HTTP: an answer without
// "allowed" is none.
func decodeAnswer(r io.Reader) (gitgw.Answer, error) {
	var wire struct {
		Allowed *bool  `json:"allowed"`
		By      string `json:"by"`
		Reason  string `json:"reason"`
		Scope   string `json:"scope"`
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return gitgw.Answer{}, fmt.Errorf("read answer: %w", err)
	}
	if err := local.Decode(data, &wire); err != nil {
		return gitgw.Answer{}, fmt.Errorf("answer: %w", err)
	}
	if wire.Allowed == nil {
		return gitgw.Answer{}, errors.New(`answer: no field "allowed"`)
	}
	return gitgw.Answer{Allowed: *wire.Allowed, By: wire.By, Reason: wire.Reason, Scope: wire.Scope}, nil
}
