package egress

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
	"postern/caddy-modules/session/probe"
)

// probePath is where the probe's result is on the control socket.
const probePath = "/v1/probe"

// Sandbox concerns what programs that run agents are told of this host's sandbox. The
// appliance itself confines nothing, and nothing of it depends on this. It is read
// when the process starts.
type Sandbox struct {
	// `off` says that hosts are to run without a sandbox; anything else is on, in any
	// case. Default: `$POSTERN_SANDBOX`, else `$CC_SERVER_SANDBOX`, else on.
	Mode string `json:"mode,omitempty"`

	// The launcher, which probes. Default: postern beside this program, else in
	// /usr/local/bin or /usr/bin.
	Launcher string `json:"launcher,omitempty"`
}

func (s *Sandbox) validate() error {
	if s != nil && s.Launcher != "" && !filepath.IsAbs(s.Launcher) {
		return fmt.Errorf("sandbox: the launcher %q is not an absolute path", s.Launcher)
	}
	return nil
}

// probing is the one probe of a process.
type probing struct {
	mu     sync.Mutex
	prober *probe.Prober
	first  Sandbox
}

// start begins the probe as the first configuration says and serves its result. A later
// configuration that says something else is told that it is too late.
func (p *probing) start(s *Sandbox, registry *session.Registry, log *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var said Sandbox
	if s != nil {
		said = *s
	}
	if p.prober != nil {
		if said != p.first {
			log.Warn("sandbox: another setting than at the start of the process; restart it")
		}
		return
	}
	p.first = said
	p.prober = probe.New(probe.Options{Launcher: said.Launcher, Off: probe.Off(said.Mode, os.Getenv), Log: processLog()})
	p.prober.Start()
	registry.Mount(probePath, probeHandler(p.prober))
}

// close ends a probe that is under way.
func (p *probing) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prober != nil {
		p.prober.Close()
	}
}

func probeHandler(p *probe.Prober) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(probePath, session.Methods{"GET": func(w http.ResponseWriter, r *http.Request) {
		result, err := p.Result(r.Context())
		if err != nil {
			session.WriteError(w, &lease.Error{Code: lease.CodeTimeout, Message: err.Error()})
			return
		}
		session.WriteJSON(w, http.StatusOK, result)
	}})
	mux.HandleFunc("/", session.Nothing)
	return mux
}

// sandbox reads the option: sandbox [on|off] [{ launcher PATH }].
func (p *parser) sandbox() error {
	s := &Sandbox{}
	p.app.Sandbox = s
	if p.NextArg() {
		s.Mode = p.Val()
		if s.Mode != "on" && s.Mode != "off" {
			return p.Errf("sandbox is on or off, not %q", s.Mode)
		}
		if p.NextArg() {
			return Want(p.Dispenser, "sandbox on|off [{ launcher PATH }]")
		}
	}
	opened, err := Block(p.Dispenser, "sandbox", func() error {
		if p.Val() != "launcher" {
			return p.Errf("unrecognized sandbox option %q; want launcher", p.Val())
		}
		if s.Launcher != "" {
			return p.Errf("launcher is given twice")
		}
		if !p.AllArgs(&s.Launcher) {
			return Want(p.Dispenser, "launcher PATH")
		}
		if err := s.validate(); err != nil {
			return p.WrapErr(err)
		}
		return nil
	})
	if err == nil && !opened && s.Mode == "" {
		return p.Err("sandbox needs on, off or a block")
	}
	return err
}
