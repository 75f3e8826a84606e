package gitgateway

import (
	"errors"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/egress"
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

	// Wait is how long a push waits for an answer; zero means the gateway's
	// default.
	Wait() time.Duration
}

// HTTP asks a program on this host: it sends the question as JSON in a POST and
// waits for 200 and {"allowed": true, "by": "…", "reason": "…"}.
type HTTP struct {
	// Where the program listens: unix//PATH, or http://127.0.0.1:PORT/PATH. A
	// question names what people work on, and never leaves the host.
	URL string `json:"url"`

	// How long to wait for an answer. Default: 2m.
	Timeout caddy.Duration `json:"timeout,omitempty"`

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
	m.approver, err = approve.NewHTTP(caddy.NewReplacer().ReplaceKnown(m.URL, ""), time.Duration(m.Timeout))
	return err
}

// Approver implements [ApproverSource].
func (m *HTTP) Approver() gitgw.Approver { return m.approver }

// Wait implements [ApproverSource].
func (m *HTTP) Wait() time.Duration { return time.Duration(m.Timeout) }

// UnmarshalCaddyfile sets up the approver from Caddyfile tokens. Syntax:
//
//	http URL [{
//		timeout DURATION
//	}]
func (m *HTTP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.AllArgs(&m.URL) {
		return d.ArgErr()
	}
	// What it says of the address it says with file and line here.
	if _, err := approve.NewHTTP(m.URL, 0); err != nil {
		return d.WrapErr(err)
	}
	var timeout string
	if err := options(d, "http", map[string]*string{"timeout": &timeout}); err != nil {
		return err
	}
	return wrap(d, setDuration("timeout", timeout, &m.Timeout))
}

// Queue holds questions until whoever listens on the control socket answers them:
//
//	GET  /v1/approvals         the open questions
//	GET  /v1/approvals/events  each question as it is asked and closed, a JSON
//	                           object a line; who holds it open is the listener
//	POST /v1/approvals/{id}    {"allowed": true, "by": "…", "reason": "…"}
//
// Without a listener there is nobody to ask, and `ask` rules refuse at once.
type Queue struct {
	// How long to wait for an answer. Default: 2m.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	unmount func()
}

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

// Provision serves the queue on the control socket.
func (m *Queue) Provision(ctx caddy.Context) error {
	if m.Timeout < 0 {
		return errors.New("timeout is negative")
	}
	v, err := ctx.AppIfConfigured("egress")
	if err != nil {
		return err
	}
	m.unmount = v.(*egress.App).Registry().Mount(approvalsPath, questionsHandler(questions))
	return nil
}

// Approver implements [ApproverSource].
func (*Queue) Approver() gitgw.Approver { return questions }

// Wait implements [ApproverSource].
func (m *Queue) Wait() time.Duration { return time.Duration(m.Timeout) }

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
//		timeout DURATION
//	}]
func (m *Queue) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if d.NextArg() {
		return d.ArgErr()
	}
	var timeout string
	if err := options(d, "queue", map[string]*string{"timeout": &timeout}); err != nil {
		return err
	}
	return wrap(d, setDuration("timeout", timeout, &m.Timeout))
}

// Interface guards
var (
	_ ApproverSource        = (*HTTP)(nil)
	_ caddy.Provisioner     = (*HTTP)(nil)
	_ caddyfile.Unmarshaler = (*HTTP)(nil)
	_ ApproverSource        = (*Queue)(nil)
	_ caddy.Provisioner     = (*Queue)(nil)
	_ caddy.CleanerUpper    = (*Queue)(nil)
	_ caddyfile.Unmarshaler = (*Queue)(nil)
)
