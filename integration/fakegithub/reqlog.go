package fakegithub

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Request is one line of the request log.
type Request struct {
	Time          time.Time // GitHub's time at arrival
	Method        string
	Path          string // as sent, without the query
	Query         string
	Repo          string // owner/name as sent, for git and /repos/ requests
	Service       string // "git-upload-pack" or "git-receive-pack" for git requests, advertisement or not
	Token         string // the token's value, if the request carried a known one
	UserAgent     string
	GitProtocol   string // the Git-Protocol header; git sends none for a push
	Header        http.Header
	ContentLength int64 // -1 for a chunked body
	Received      int64 // bytes of body read
	Sent          int64 // bytes of body written
	Status        int   // 0 while it runs, and after an abort before the head
	Done          bool
}

// Requests is a copy of the log, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Request, len(s.requests))
	for i, r := range s.requests {
		out[i] = *r
	}
	return out
}

// ForgetRequests empties the log. Requests that still run do not come back.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Find is the part of the log that matches: every non-empty argument must
// equal the method, be a substring of the path, and equal the service.
func (s *Server) Find(method, path, service string) []Request {
	var out []Request
	for _, r := range s.Requests() {
		if (method == "" || r.Method == method) && strings.Contains(r.Path, path) && (service == "" || r.Service == service) {
			out = append(out, r)
		}
	}
	return out
}

// Pushes is the log of receive-pack requests that carried commands or the
// probe, that is, without advertisements. A denied push leaves it empty.
func (s *Server) Pushes() []Request { return s.Find(http.MethodPost, "", "git-receive-pack") }

// Mints is the log of requests for a token.
func (s *Server) Mints() []Request { return s.Find(http.MethodPost, "/access_tokens", "") }

// begin enters a request in the log. Handlers change it through note only.
func (s *Server) begin(r *http.Request) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &Request{
		Time: s.now(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		UserAgent: r.UserAgent(), GitProtocol: r.Header.Get("Git-Protocol"),
		Header: r.Header.Clone(), ContentLength: r.ContentLength,
	}
	s.requests = append(s.requests, e)
	return e
}

// note changes an entry that others may be copying.
func (s *Server) note(e *Request, f func(*Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(e)
}

func (s *Server) end(e *Request, rec *recorder) {
	var done Request
	s.note(e, func(r *Request) {
		r.Received, r.Sent, r.Status, r.Done = rec.received.Load(), rec.sent, rec.status, true
		done = *r
	})
	s.opts.Log.Info("request", slog.String("method", done.Method), slog.String("path", done.Path),
		slog.String("service", done.Service), slog.Int("status", done.Status),
		slog.Int64("received", done.Received), slog.Int64("sent", done.Sent))
}

// recorder counts what goes through a handler. It keeps the ResponseController
// working (Unwrap) and is used by one goroutine, but for the body's count.
type recorder struct {
	http.ResponseWriter
	received atomic.Int64
	sent     int64
	status   int
}

func newRecorder(w http.ResponseWriter, r *http.Request) *recorder {
	rec := &recorder{ResponseWriter: w}
	r.Body = &countedBody{ReadCloser: r.Body, n: &rec.received}
	return rec
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader remembers the first final status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.sent += int64(n)
	return n, err
}

type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}
