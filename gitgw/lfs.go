package gitgw

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

// lfsType is the media type of Git LFS's API.
const lfsType = "application/vnd.git-lfs+json"

// lfs answers Git LFS, whose pre-push hook comes to the gateway before git sends any
// command. Locks are unknown here, which LFS takes silently. Uploads are carried: the
// forge's upload addresses, and the credential that comes with them, stay here, and
// the run is given addresses of this gateway instead. Passed on, they would be a
// credential in the run's hands.
func (g *Gateway) lfs(w http.ResponseWriter, r *http.Request, caller Caller, up *upstream, to route) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex()
	body, err := newClientBody(rc, r, g.Limits.withDefaults().Stall)
	cut := afterEnd(r, body)
	defer cut()
	l := &lfsRequest{g: g, caller: caller, up: up, to: to, body: body, limits: g.Limits.withDefaults()}
	switch {
	case err != nil:
		err = &lfsError{http.StatusUnsupportedMediaType, CodeLFSEncoding, g.notice(err.Error())}
	case to.service == serviceLFSBatch:
		err = l.batch(w, r)
	case to.service == serviceLFSUpload:
		err = l.upload(w, r)
	case to.service == serviceLFSVerify:
		err = l.verify(w, r)
	default:
		err = &lfsError{http.StatusNotFound, CodeLFSLocks, "Not found"}
	}
	if err == nil {
		return
	}
	// Answered without reading, LFS reports a broken connection.
	if body.drain() != nil {
		panic(http.ErrAbortHandler)
	}
	said := &lfsError{http.StatusBadGateway, codeOf(err, CodeLFSStorage), g.notice("Git LFS: " + err.Error())}
	_ = errors.As(err, &said)
	_ = rc.SetWriteDeadline(time.Now().Add(l.limits.Stall))
	text := l.redact.line(said.text)
	if said.code != CodeLFSLocks { // which LFS takes silently
		text += "; " + said.code.cure()
	}
	writeLFS(w, said.status, struct {
		Message string `json:"message"`
	}{text})
}

// lfsRequest is one request of Git LFS.
type lfsRequest struct {
	g      *Gateway
	caller Caller
	up     *upstream
	to     route
	body   *clientBody
	limits Limits
	redact redactor
}

// lfsError is an answer that is no success. Its text is fit for git's output.
type lfsError struct {
	status int
	code   Code
	text   string
}

func (e *lfsError) Error() string { return e.text }

// afterEnd aborts the reading of body when r's run or client ends, until it is called.
func afterEnd(r *http.Request, body *clientBody) (stop func()) {
	over := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-r.Context().Done():
			body.abort()
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-gone
	}
}

func writeLFS(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", lfsType)
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// readLFS decodes a bounded body.
func readLFS(r io.Reader, most int64, into any) error {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return err
	case int64(len(data)) > most:
		return errors.New("it is too large")
	}
	return json.Unmarshal(data, into)
}
