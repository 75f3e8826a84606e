package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"postern/caddy-modules/session/lease"
)

// Methods are the handlers of one path, by request method. A method that is not
// among them is answered as everything on the control socket is: in JSON.
type Methods map[string]http.HandlerFunc

// ServeHTTP implements [http.Handler].
func (m Methods) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if handle, ok := m[req.Method]; ok {
		handle(w, req)
		return
	}
	allow := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	w.Header().Set("Allow", allow)
	WriteError(w, &lease.Error{Code: codeMethod, Message: fmt.Sprintf("%s is not possible here; %s is", req.Method, allow)})
}

// Nothing answers a path at which there is nothing.
func Nothing(w http.ResponseWriter, req *http.Request) {
	WriteError(w, &lease.Error{Code: lease.CodeNotFound, Message: fmt.Sprintf("there is nothing at %q", req.URL.Path)})
}

const (
	codeMethod   = "method_not_allowed"
	codeInternal = "internal"
)

// statuses are the HTTP statuses of the codes; others are 500.
var statuses = map[string]int{
	codeMethod:              http.StatusMethodNotAllowed,
	lease.CodeBadRequest:    http.StatusBadRequest,
	lease.CodeTooLarge:      http.StatusRequestEntityTooLarge,
	lease.CodeTimeout:       http.StatusRequestTimeout,
	lease.CodeNotPermitted:  http.StatusForbidden,
	lease.CodeInUse:         http.StatusConflict,
	lease.CodeConflict:      http.StatusConflict,
	lease.CodeUnknownPolicy: http.StatusUnprocessableEntity,
	lease.CodeBadRule:       http.StatusUnprocessableEntity,
	lease.CodeNotFound:      http.StatusNotFound,
	lease.CodeEnded:         http.StatusGone,
	lease.CodeNotConfigured: http.StatusServiceUnavailable,
	lease.CodeUnavailable:   http.StatusServiceUnavailable,
	lease.CodeClosing:       http.StatusServiceUnavailable,
}

// WriteError answers with an error, {"code":…,"message":…}, and the status that goes
// with its code. An error that is no [lease.Error] is internal.
func WriteError(w http.ResponseWriter, err error) {
	var known *lease.Error
	if !errors.As(err, &known) {
		known = &lease.Error{Code: codeInternal, Message: err.Error()}
	}
	status, ok := statuses[known.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	WriteJSON(w, status, known)
}

// WriteJSON answers with v, one of our own types, which all encode.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"code":"internal","message":"the answer does not encode"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
