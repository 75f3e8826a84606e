package gitgateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/egress"
	"postern/caddy-modules/session"
	"postern/gitgw"
	"postern/gitgw/approve"
)

func init() {
	caddy.RegisterModule(HTTP{})
	caddy.RegisterModule(Queue{})
}

// ApproverSource is what a module of the namespace gitgw.approvers must be. The
// approver outlives the module, since a push may wait for an answer over a reload.
type ApproverSource interface {
	Approver() gitgw.Approver

	// Name tells approvers apart: what one has allowed is not allowed by another.
	Name() string

	// Wait is how long a push waits for an answer, Remember how long after that an
	// answer still counts; zero means the gateway's default.
	Wait() time.Duration
	Remember() time.Duration
}

// Timing is how long questions wait, and answers.
type Timing struct {
	// How long a push waits for an answer, an hour at most. Default: 2m.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// How long the question stays open after that, and how long an answer that comes
	// then is kept: the same push, made again, finds it, once. Default: 10m.
	Keep caddy.Duration `json:"remember,omitempty"`
}

// Wait implements [ApproverSource].
func (m *Timing) Wait() time.Duration { return time.Duration(m.Timeout) }

// Remember implements [ApproverSource].
func (m *Timing) Remember() time.Duration { return time.Duration(m.Keep) }

// Validate refuses times that have passed already, and such as nobody waits for.
func (m *Timing) Validate() error {
	if m.Timeout < 0 {
		return errors.New("timeout is negative")
	}
	if m.Keep < 0 {
		return errors.New("remember is negative")
	}
	return m.checkTimeout()
}

func (m *Timing) checkTimeout() error {
	if wait := time.Duration(m.Timeout); wait > gitgw.MaxAsk {
		return fmt.Errorf("timeout %s is longer than what is asked about may wait; name an hour at most, and keep the question open for longer with remember", wait)
	}
	return nil
}

// unmarshal reads the times from a module's block.
func (m *Timing) unmarshal(d *caddyfile.Dispenser, module string) error {
	timeout := duration("timeout", &m.Timeout)
	read := timeout.set
	timeout.set = func(text string) error {
		if err := read(text); err != nil {
			return err
		}
		return m.checkTimeout()
	}
	return options(d, module, map[string]option{"timeout": timeout, "remember": duration("remember", &m.Keep)})
}

// HTTP asks a program on this host: it sends the question as JSON in a POST and
// waits for 200 and {"allowed": true, "by": "…", "reason": "…"}.
type HTTP struct {
	// Where the program listens: unix//PATH, or http://127.0.0.1:PORT/PATH. A
	// question names what people work on, and never leaves the host.
	URL string `json:"url"`

	Timing

	approver *approve.HTTP
}

// CaddyModule returns the Caddy module information.
func (HTTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "gitgw.approvers.http",
		New: func() caddy.Module { return new(HTTP) },
	}
}

// Provision checks the address. Nobody need listen there yet.
func (m *HTTP) Provision(caddy.Context) (err error) {
	if m.URL == "" {
		return errors.New("url is missing")
	}
	url, err := resolve("url", m.URL)
	if err != nil {
		return err
	}
	m.approver, err = approve.NewHTTP(url)
	return err
}

// Name implements [ApproverSource].
func (m *HTTP) Name() string { return "http " + m.URL }

// Approver implements [ApproverSource].
func (m *HTTP) Approver() gitgw.Approver { return m.approver }

// UnmarshalCaddyfile sets up the approver from Caddyfile tokens. Syntax:
//
//	http URL [{
//		timeout  DURATION
//		remember DURATION
//	}]
func (m *HTTP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.AllArgs(&m.URL) {
		return egress.Want(d, "approver http unix//PATH|http://127.0.0.1:PORT/PATH [{ timeout DURATION; remember DURATION }]")
	}
	// What it says of the address it says with file and line here.
	if _, err := approve.NewHTTP(m.URL); err != nil {
		return d.WrapErr(err)
	}
	return m.unmarshal(d, "http")
}

// Queue holds questions until whoever listens on the control socket answers them:
//
//	GET  /v1/approvals         the open questions
//	GET  /v1/approvals/events  each question as it is asked and closed, a JSON
//	                           object a line; who holds it open is the listener.
//	                           GET /v1/approvals is the same for who accepts
//	                           application/x-ndjson, or says ?stream
//	POST /v1/approvals/{id}    {"allowed": true, "by": "…", "reason": "…"}
//
// Without a listener there is nobody to ask, and `ask` rules refuse at once.
type Queue struct {
	Timing

	unmount func()
}

// approvals remembers questions that outlived their pushes, and what was answered:
// for the process, as sessions are, so that a reload forgets nothing.
var approvals = new(gitgw.Approvals)

// questions is the one queue of the process: a question, and the page on which a
// person reads it, outlive a reload.
var questions = approve.NewQueue(0, 0)

// CaddyModule returns the Caddy module information.
func (Queue) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "gitgw.approvers.queue",
		New: func() caddy.Module { return new(Queue) },
	}
}

// Mount serves the queue on the control socket. It implements [egress.Mounter]: the
// app loads the module as well, and could not be asked for the registry then.
func (m *Queue) Mount(r *session.Registry) {
	m.unmount = r.Mount(approvalsPath, questionsHandler(questions))
}

// Name implements [ApproverSource].
func (*Queue) Name() string { return "queue" }

// Approver implements [ApproverSource].
func (*Queue) Approver() gitgw.Approver { return questions }

// Cleanup takes the queue from the control socket. If a newer configuration has
// it there too, that one's stays.
func (m *Queue) Cleanup() error {
	if m.unmount != nil {
		m.unmount()
	}
	return nil
}

// UnmarshalCaddyfile sets up the approver from Caddyfile tokens. Syntax:
//
//	queue [{
//		timeout  DURATION
//		remember DURATION
//	}]
func (m *Queue) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if d.NextArg() {
		return egress.Want(d, "approver queue [{ timeout DURATION; remember DURATION }]")
	}
	return m.unmarshal(d, "queue")
}

// Interface guards
var (
	_ ApproverSource        = (*HTTP)(nil)
	_ caddy.Provisioner     = (*HTTP)(nil)
	_ caddyfile.Unmarshaler = (*HTTP)(nil)
	_ ApproverSource        = (*Queue)(nil)
	_ egress.Mounter        = (*Queue)(nil)
	_ caddy.CleanerUpper    = (*Queue)(nil)
	_ caddyfile.Unmarshaler = (*Queue)(nil)
)
